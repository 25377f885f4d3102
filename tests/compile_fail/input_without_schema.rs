use agentloop::Tool;
use serde::Deserialize;

#[derive(Deserialize)]
struct Day {
    date: String,
}

fn main() {
    let _ = Tool::typed("events", "Lists events", |day: Day| async move { day.date });
}
