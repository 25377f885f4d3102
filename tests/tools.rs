//! Tool definitions: what goes over the wire, derived schemas and their strict form.

use agentloop::Tool;
use serde_json::{Value, json};

fn text(tool: &Tool) -> String {
    tool.definition().unwrap().get().to_owned()
}

fn every_setter() -> Tool {
    Tool::new(
        "run_sql",
        "Runs one statement",
        json!({"type": "object", "properties": {"q": {"type": "string"}}}),
    )
    .cache_control(json!({"type": "ephemeral", "ttl": "1h"}))
    .eager_input_streaming(false)
    .allowed_callers(["direct"])
    .defer_loading(false)
    .input_examples([json!({"q": "select 1"})])
    .strict(true)
    .set("later", json!({"b": 1, "a": [2.50]}))
    .handler(|_: Value| async { "done" })
    .timeout(std::time::Duration::from_secs(1))
    .idempotent(true)
}

#[test]
fn j02_every_field_passes_unchanged_and_only_fields_of_the_api_are_sent() {
    assert_eq!(
        text(&every_setter()),
        r#"{"name":"run_sql","description":"Runs one statement","input_schema":{"type":"object","properties":{"q":{"type":"string"}}},"strict":true,"input_examples":[{"q":"select 1"}],"allowed_callers":["direct"],"defer_loading":false,"eager_input_streaming":false,"cache_control":{"type":"ephemeral","ttl":"1h"},"later":{"b":1,"a":[2.5]}}"#
    );
    let schema = r#"{"type":"object","properties":{"n":{"maximum":1e2,"x":1234567890123456789012345}}}"#;
    let raw = serde_json::value::RawValue::from_string(schema.to_owned()).unwrap();
    assert!(text(&Tool::new("f", "d", raw).strict(true)).contains(schema));
}

#[test]
fn j16_a_definition_goes_out_as_it_came() {
    for definition in [
        r#"{"type":"web_search_20260318","name":"web_search","max_uses":3}"#,
        r#"{"type":"computer_toolset_20260801","configs":{"zoom":{"enabled":false}}}"#,
        r#"{ "name": "f", "input_schema": {"type":"object","anyOf":[]}, "future": 1e2 }"#,
    ] {
        assert_eq!(text(&Tool::from_definition(definition)), definition);
    }
    let bash = Tool::from_definition(r#"{"type":"bash_20250124", "name":"bash"}"#).cached().cached();
    assert_eq!(text(&bash), r#"{"type":"bash_20250124","name":"bash","cache_control":{"type":"ephemeral"}}"#);
}

#[test]
fn definitions_have_the_same_bytes_each_time() {
    let first = text(&every_setter());
    for _ in 0..100 {
        assert_eq!(text(&every_setter()), first);
    }
}

#[cfg(feature = "schemars")]
mod derived {
    use std::collections::{BTreeMap, HashSet};

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;

    /// Plans a trip.
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Trip {
        /// Where it starts
        zone: String,
        #[schemars(range(min = 1, max = 30))]
        nights: u32,
        budget: Option<f64>,
        #[serde(default)]
        fast: bool,
        stops: Vec<Stop>,
        home: Option<Stop>,
        /// Which way back
        back: Stop,
        pair: (u8, String),
        mood: Mood,
        letter: char,
        tags: HashSet<String>,
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    struct Stop {
        #[schemars(length(min = 1), regex(pattern = r"^\w+$"))]
        city: String,
        via: Via,
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    enum Mood {
        /// All is well
        Good,
        Bad,
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "by")]
    enum Via {
        Foot,
        Train { line: String, class: u8 },
        Other(Note),
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    struct Note {
        text: String,
    }

    /// Does sums.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "op", rename_all = "snake_case")]
    enum Sum {
        /// Adds
        Add {
            a: f64,
            b: f64,
        },
        Neg {
            a: f64,
            exact: Option<bool>,
        },
        Note(Note),
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    enum Outside {
        Ping {},
        Say { text: String },
        Wrapped(Note),
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "t", content = "c")]
    enum Beside {
        Ping,
        Say(String),
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Bare {
        One { id: u64 },
        Many { ids: Vec<u64> },
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Flat {
        id: i64,
        #[serde(flatten)]
        note: Note,
        #[serde(flatten)]
        via: Via,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct New(Note);

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Empty {}

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Tree {
        name: String,
        children: Vec<Self>,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    enum Expression {
        Number(Note),
        Not { of: Box<Self> },
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Labels {
        deep: Vec<Label>,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Label {
        labels: BTreeMap<String, String>,
    }

    fn schema(tool: &Tool) -> Value {
        serde_json::from_str::<Value>(&text(tool)).unwrap()["input_schema"].clone()
    }

    fn derive<T: JsonSchema + 'static>() -> Tool {
        Tool::with_input::<T>("f", "d")
    }

    fn error(tool: &Tool) -> String {
        tool.definition().unwrap_err().to_string()
    }

    /// Enough of JSON Schema to judge the schemas here. Counts what it looked at.
    fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
        let Some(object) = schema.as_object() else { return schema == &json!(true) };
        object.iter().all(|(key, keyword)| {
            let members = || keyword.as_array().into_iter().flatten();
            match key.as_str() {
                "$ref" => {
                    let target = root.pointer(keyword.as_str().unwrap().strip_prefix('#').unwrap());
                    fits(root, target.expect("a reference that leads somewhere"), value)
                }
                "type" => match keyword {
                    Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                    kind => is(kind, value),
                },
                "properties" => keyword
                    .as_object()
                    .unwrap()
                    .iter()
                    .all(|(name, schema)| value.get(name).is_none_or(|value| fits(root, schema, value))),
                "required" => {
                    !value.is_object() || members().all(|name| value.get(name.as_str().unwrap()).is_some())
                }
                "additionalProperties" => value.as_object().into_iter().flatten().all(|(name, value)| {
                    object.get("properties").is_some_and(|own| own.get(name).is_some())
                        || fits(root, keyword, value)
                }),
                "items" => value.as_array().into_iter().flatten().all(|item| fits(root, keyword, item)),
                "prefixItems" => members()
                    .zip(value.as_array().into_iter().flatten())
                    .all(|(schema, item)| fits(root, schema, item)),
                "anyOf" => members().any(|schema| fits(root, schema, value)),
                "oneOf" => members().filter(|schema| fits(root, schema, value)).count() == 1,
                "enum" => members().any(|member| member == value),
                "const" => keyword == value,
                "minItems" => {
                    value.as_array().is_none_or(|list| list.len() as u64 >= keyword.as_u64().unwrap())
                }
                "maxItems" => {
                    value.as_array().is_none_or(|list| list.len() as u64 <= keyword.as_u64().unwrap())
                }
                "minimum" => value.as_f64().is_none_or(|number| number >= keyword.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= keyword.as_f64().unwrap()),
                "description" | "format" | "pattern" | "default" | "title" | "$defs" | "uniqueItems"
                | "minLength" | "maxLength" => true,
                key => panic!("{key} is not judged"),
            }
        })
    }

    fn is(kind: &Value, value: &Value) -> bool {
        match kind.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            kind => panic!("{kind}"),
        }
    }

    /// Samples of a type fit its schema and its strict schema, and foreign objects do not.
    fn check<T: JsonSchema + Serialize + 'static>(samples: Vec<T>, foreign: &[Value], strict: bool) -> usize {
        let mut tools = vec![derive::<T>()];
        if strict {
            tools.push(derive::<T>().strict(true));
        }
        let mut count = 0;
        for tool in tools {
            let schema = schema(&tool);
            assert_eq!(schema["type"], "object");
            for keyword in ["$schema", "$ref", "title", "oneOf", "anyOf", "allOf"] {
                assert!(schema.get(keyword).is_none(), "{schema}");
            }
            for sample in &samples {
                let sample = serde_json::to_value(sample).unwrap();
                assert!(fits(&schema, &schema, &sample), "{sample} against {schema}");
                count += 1;
            }
            for foreign in foreign {
                assert!(!fits(&schema, &schema, foreign), "{foreign} against {schema}");
                count += 1;
            }
        }
        count
    }

    fn note() -> Note {
        Note { text: "t".into() }
    }

    fn vias() -> [Via; 3] {
        [Via::Foot, Via::Train { line: "U8".into(), class: 2 }, Via::Other(note())]
    }

    fn trip() -> Trip {
        let stops: Vec<_> = vias().map(|via| Stop { city: "Berlin".into(), via }).into();
        Trip {
            zone: "B".into(),
            nights: 3,
            budget: None,
            fast: true,
            home: Some(stops[1].clone()),
            back: stops[2].clone(),
            stops,
            pair: (1, "x".into()),
            mood: Mood::Good,
            letter: 'ä',
            tags: HashSet::from(["a".into()]),
        }
    }

    #[test]
    fn what_the_type_reads_fits_its_schema() {
        let foreign = [json!({}), json!({"zone": 1}), json!({"unknown": true})];
        let counts = [
            check(vec![trip()], &foreign, true),
            check(
                vec![Sum::Add { a: 1.0, b: 2.0 }, Sum::Neg { a: 1.0, exact: None }, Sum::Note(note())],
                &[json!({}), json!({"op": "mul"}), json!({"op": 1})],
                true,
            ),
            check(
                vec![Outside::Ping {}, Outside::Say { text: "t".into() }, Outside::Wrapped(note())],
                &[json!({"Else": {}}), json!({"Say": 1})],
                true,
            ),
            check(vec![Beside::Ping, Beside::Say("t".into())], &[json!({}), json!({"t": "x"})], true),
            check(vec![Bare::One { id: 1 }, Bare::Many { ids: vec![] }], &[json!({"id": "1"})], true),
            check(
                vias().map(|via| Flat { id: -1, note: note(), via }).into(),
                &[json!({"id": 1}), json!({"id": 1, "text": "", "by": "Air"})],
                true,
            ),
            check(vec![New(note())], &foreign, true),
            check(vec![Some(note())], &foreign, true),
            check(vec![Empty {}], &[json!({"a": 1})], true),
            check(
                vec![Tree { name: "r".into(), children: vec![Tree { name: "c".into(), children: vec![] }] }],
                &foreign,
                false,
            ),
            check(
                vec![
                    Expression::Number(note()),
                    Expression::Not {
                        of: Box::new(Expression::Not { of: Box::new(Expression::Number(note())) }),
                    },
                ],
                &[json!({"Not": {"of": {"Else": 1}}}), json!({"Not": {}})],
                false,
            ),
            check(
                vec![Labels { deep: vec![Label { labels: BTreeMap::from([("a".into(), "b".into())]) }] }],
                &foreign,
                false,
            ),
            check(vec![BTreeMap::from([("a", 1)])], &[json!({"a": "b"})], false),
            check(vec![json!({"any": "thing"})], &[json!(1)], false),
        ];
        println!("{} samples judged, of {} types", counts.iter().sum::<usize>(), counts.len());
    }

    #[test]
    fn properties_stand_as_declared() {
        let schema = schema(&derive::<Trip>());
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["zone", "nights", "budget", "fast", "stops", "home", "back", "pair", "mood", "letter", "tags"]
        );
        assert_eq!(schema["description"], "Plans a trip.");
        assert_eq!(schema["properties"]["zone"]["description"], "Where it starts");
    }

    #[test]
    fn variants_are_told_in_words() {
        let schema = schema(&derive::<Sum>());
        assert_eq!(schema["required"], json!(["op"]));
        assert_eq!(schema["properties"]["op"], json!({"type": "string", "enum": ["add", "neg", "note"]}));
        assert_eq!(
            schema["description"],
            "Does sums.\n\nTakes exactly one of these forms:\n- `op`: \"add\", `a`, `b`: Adds\n\
             - `op`: \"neg\", `a`, `exact` (optional)\n- `op`: \"note\", `text`"
        );
    }

    #[test]
    fn no_arguments_are_an_empty_object() {
        for strict in [false, true] {
            let tool = Tool::typed("f", "d", |(): ()| async {}).strict(strict);
            assert_eq!(schema(&tool)["properties"], json!({}));
        }
    }

    /// Both ways to write an async closure, and a function.
    #[test]
    fn handlers_are_closures_and_functions() {
        async fn read(note: Note) -> String {
            note.text
        }

        let tools = [
            Tool::typed("f", "d", async |note: Note| note.text),
            Tool::typed("f", "d", |note: Note| async move { Ok(note.text) }),
            Tool::typed("f", "d", read),
        ];
        assert!(tools.iter().all(|tool| text(tool) == text(&tools[0])));
    }

    #[test]
    fn a_type_that_is_not_an_object_is_named() {
        for (tool, name) in [
            (derive::<String>(), "`alloc::string::String`"),
            (derive::<(u8, u8)>(), "`(u8, u8)`"),
            (derive::<f64>(), "`f64`"),
            (derive::<Vec<Note>>(), "Note>`"),
            (derive::<Mood>(), "Mood`"),
            (derive::<Option<u8>>(), "Option<u8>`"),
        ] {
            let error = error(&tool.strict(true).cached());
            assert!(error.starts_with("tool `f`: ") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn strict_is_the_same_wherever_it_is_called() {
        let handler = |_: Sum| async { "done" };
        let tools = [
            derive::<Sum>().strict(true).handler(handler).cached(),
            derive::<Sum>().cached().handler(handler).strict(true),
            derive::<Sum>().strict(false).strict(true).handler(handler).cached(),
            Tool::typed("f", "d", handler).set("strict", true).cached(),
        ];
        for tool in &tools {
            assert_eq!(text(tool), text(&tools[0]));
        }
        let loose = derive::<Sum>().strict(true).strict(false);
        assert_eq!(schema(&loose), schema(&derive::<Sum>()));
        let own = json!({"type": "object", "minProperties": 1});
        assert_eq!(schema(&derive::<Sum>().set("input_schema", &own).strict(true)), own);
    }

    #[test]
    fn what_has_no_strict_form_is_named_with_its_place() {
        for (tool, reason) in [
            (derive::<Labels>(), "at `deep[].labels`: a map with free keys"),
            (derive::<Tree>(), "at `children[]`: the type refers to itself"),
            (derive::<Expression>(), "the type refers to itself"),
            (derive::<BTreeMap<String, u8>>(), "at the root: a map with free keys"),
        ] {
            assert!(tool.definition().is_ok());
            let error = error(&tool.strict(true));
            assert!(error.contains(reason) && error.contains("strict tool"), "{error}");
        }
    }

    #[test]
    fn derived_definitions_have_the_same_bytes_each_time() {
        let build =
            || text(&derive::<Trip>().strict(true)) + &text(&derive::<Flat>()) + &text(&derive::<Sum>());
        let first = build();
        for _ in 0..100 {
            assert_eq!(build(), first);
        }
    }
}
