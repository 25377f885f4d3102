use std::rc::Rc;

use agentloop::Tool;
use serde_json::json;

fn main() {
    let _ = Tool::new("count", "Counts", json!({"type": "object"})).handler(|(): ()| async {
        let count = Rc::new(1);
        std::future::ready(()).await;
        format!("{count}")
    });
}
