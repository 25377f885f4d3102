use agentloop::Tool;
use serde::Serialize;
use serde_json::json;

#[derive(Serialize)]
struct Weather {
    celsius: f64,
}

fn main() {
    let _ = Tool::new("weather", "Tells the weather", json!({"type": "object"}))
        .handler(|(): ()| async { Weather { celsius: 21.0 } });
    let _ = Tool::new("weather", "Tells the weather", json!({"type": "object"}))
        .blocking(|(): ()| Ok(Weather { celsius: 21.0 }));
}
