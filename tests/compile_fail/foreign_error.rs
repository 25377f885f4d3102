use agentloop::Tool;
use serde_json::json;

async fn read() -> Result<String, std::io::Error> {
    std::fs::read_to_string("notes.txt")
}

fn main() {
    let _ = Tool::new("read", "Reads the notes", json!({"type": "object"})).handler(|(): ()| read());
}
