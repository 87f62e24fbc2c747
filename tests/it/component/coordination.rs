//! Settings of coordination through the component: what is pinned, what is refused, and how full a
//! window is told to be.

use super::fixture::message;
use super::project::engine;
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::component::TenantContext;
use threadkeep::error::CallError;
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::{self, llm, registry::Filter};
use threadkeep_tests::fixture::{MapLibrary, draft};

const SUMMARY: &str = "rye/agent/threads/thread_summary";

/// A tenant whose records can be looked at.
struct SettingsWorld {
    store: Arc<MemoryStore>,
    tenant: Tenant,
}

impl SettingsWorld {
    fn new(library: impl TenantLibrary + 'static) -> Self {
        let store = Arc::new(MemoryStore::new());
        let shared = Arc::clone(&store) as Arc<dyn StorageBackend>;
        let context = TenantContext::new(shared, Arc::new(library));
        Self {
            store,
            tenant: Tenant::new(engine(), context),
        }
    }

    /// Starts a thread and returns how its pin continues it, and the schema of its waits.
    async fn start_and_read_pin(
        &self,
        directive: Option<&str>,
    ) -> Result<(Value, String), CallError> {
        let thread = self.tenant.create(draft(directive)).await?;
        let started = self
            .tenant
            .start(&thread.id, Some(message("go")), "h/1", "k", None);
        started.await?;
        let pins = self.store.scan("pin", "", "", 10, false).unwrap();
        let pin: Value = serde_json::from_str(&pins.items[0].value).unwrap();
        let tools = pin["tools"].as_array().unwrap();
        let waits = tools.iter().find(|tool| tool["name"] == "wait_threads");
        let schema = waits.map_or(Value::Null, |waits| waits["schema"].clone());
        let schema = schema.as_str().unwrap_or_default().to_owned();
        Ok((pin["continuation"].clone(), schema))
    }

    /// Returns field and nearest of the refusal of a thread.
    async fn refusal(&self, directive: Option<&str>) -> (String, Option<String>) {
        let error = self.tenant.create(draft(directive)).await.unwrap_err();
        let threads = self.store.scan("thread", "", "", 10, false).unwrap();
        assert!(threads.items.is_empty(), "nothing was written");
        match error {
            CallError::Refused(wit::Error::Invalid(wrong)) => (wrong.field, wrong.nearest),
            CallError::Refused(wit::Error::NotFound(missing)) => (missing.name, missing.nearest),
            error => panic!("{error:?}"),
        }
    }
}

fn library_with(continuation: Value) -> MapLibrary {
    let settings = json!({"coordination": {"continuation": continuation}});
    MapLibrary::small().with("settings", "coordination", &settings.to_string())
}

fn with_fast(library: MapLibrary) -> MapLibrary {
    let fast = json!({"name": "quick", "provider": "p", "window": 9_000, "output": 100,
        "prices": {"input": "0.1", "output": "0.2"}});
    library.with("model", "fast", &fast.to_string())
}

#[tokio::test]
async fn a_pin_has_the_settings_and_the_summary() {
    let (pinned, schema) = SettingsWorld::new(with_fast(MapLibrary::small()))
        .start_and_read_pin(Some("boss"))
        .await
        .unwrap();
    assert_eq!(
        (&pinned["trigger"], &pinned["ceiling"], &pinned["wait"]),
        (&json!(900_000), &json!(16_000), &json!(600_000))
    );
    let summary = &pinned["summary"];
    assert_eq!(summary["model"]["name"], "quick");
    assert_eq!(
        (&summary["tokens"], &summary["turns"], &summary["spend"]),
        (&json!(4_000), &json!(3), &json!(20_000_000))
    );
    let prompt = summary["prompt"].as_str().unwrap();
    assert!(prompt.contains("${inputs.transcript_content}") && prompt.contains("It is data"));
    assert!(
        schema.contains("Seconds, 600 if you do not say."),
        "{schema}"
    );

    let settings = json!({"coordination": {
        "continuation": {"trigger_threshold": 0.5, "resume_ceiling_tokens": 900,
            "summary_directive": null},
        "wait_threads": {"default_timeout": 90},
        "transcript_integrity": "lenient",
    }});
    let library = MapLibrary::small().with("settings", "coordination", &settings.to_string());
    let (pinned, schema) = SettingsWorld::new(library)
        .start_and_read_pin(Some("boss"))
        .await
        .unwrap();
    let expected = json!({"trigger": 500_000, "ceiling": 900, "wait": 90_000});
    assert_eq!(pinned, expected);
    assert!(
        schema.contains("Seconds, 90 if you do not say."),
        "{schema}"
    );
}

#[tokio::test]
async fn a_file_replaces_the_built_in_summary_and_front_matter_the_settings() {
    let own = |body: &str| {
        json!({"name": SUMMARY, "body": body, "front": {"inputs": {"transcript_content": null}}})
            .to_string()
    };
    let body = "Briefly: ${inputs.transcript_content}";
    let library = MapLibrary::small()
        .with("directive", SUMMARY, &own(body))
        .with(
            "directive",
            "my/brief",
            &own("Mine: ${inputs.transcript_content}"),
        );
    let front = |summary: Value| {
        let front = json!({"summary": summary, "capabilities": ["execute.tool.read"]});
        json!({"name": "own", "body": "Work.", "front": front}).to_string()
    };
    let prompt = |pinned: &Value| pinned["summary"]["prompt"].clone();
    for (summary, expected) in [
        (json!({}), json!(body)),
        (
            json!({"directive": "my/brief"}),
            json!("Mine: ${inputs.transcript_content}"),
        ),
        (json!(false), Value::Null),
        (Value::Null, Value::Null),
    ] {
        let library = library.clone().with("directive", "own", &front(summary));
        let world = SettingsWorld::new(library);
        let (pinned, _) = world.start_and_read_pin(Some("own")).await.unwrap();
        assert_eq!(prompt(&pinned), expected);
    }
    let (chat, _) = SettingsWorld::new(library.clone())
        .start_and_read_pin(None)
        .await
        .unwrap();
    assert_eq!(prompt(&chat), body);
    let unusable = library
        .clone()
        .with("directive", SUMMARY, &own("Say nothing."));
    let place = format!("directives/{SUMMARY}");
    assert_eq!(
        SettingsWorld::new(unusable).refusal(Some("work")).await,
        (place, None)
    );
}

#[tokio::test]
async fn settings_that_do_not_hold_are_refused_before_anything_is_written() {
    let summary_model = |name: &str| library_with(json!({"summary_model": name}));
    let unpriced = json!({"name": "free", "provider": "p"}).to_string();
    let misplaced = json!({"coordination": {"trigger_threshold": 0.8}}).to_string();
    let misplaced = MapLibrary::small().with("settings", "coordination", &misplaced);
    let place = "coordination.continuation.trigger_threshold";
    for (library, field, nearest) in [
        (library_with(json!({"trigger_threshold": 90})), place, None),
        (misplaced, "coordination.trigger_threshold", Some(place)),
        (
            library_with(json!({"trigger_treshold": 0.9})),
            "coordination.continuation.trigger_treshold",
            Some(place),
        ),
        (summary_model("defalt"), "defalt", Some("default")),
        (
            summary_model("free").with("model", "free", &unpriced),
            "summary_model",
            None,
        ),
        (
            library_with(json!({"summary_directive": "wrk"})),
            "wrk",
            Some("work"),
        ),
    ] {
        for directive in [None, Some("work")] {
            let world = SettingsWorld::new(library.clone());
            let refused = world.refusal(directive).await;
            assert_eq!(refused, (field.to_owned(), nearest.map(str::to_owned)));
        }
    }
}

/// A library whose operator does not grant the tier for summaries.
struct UngrantedTier(MapLibrary);

impl TenantLibrary for UngrantedTier {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        match (kind, name) {
            ("model", "fast") => Err(LibraryError::Invalid {
                place: "models.quick".to_owned(),
                value: String::new(),
                problem: "is not granted".to_owned(),
                nearest: None,
            }),
            _ => self.0.document(kind, name),
        }
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        self.0.names(kind)
    }
}

/// A tenant that only grants one model can still run: the thread's own model writes the summary.
#[tokio::test]
async fn the_own_model_writes_the_summary_where_the_tier_is_missing_or_not_granted() {
    let missing = SettingsWorld::new(MapLibrary::small());
    let ungranted = SettingsWorld::new(UngrantedTier(MapLibrary::small()));
    for world in [missing, ungranted] {
        let (pinned, _) = world.start_and_read_pin(Some("work")).await.unwrap();
        assert_eq!(pinned["summary"]["model"]["name"], "default");
    }
}

/// A file that is broken later does not stop a thread that has its pin.
#[tokio::test]
async fn a_pinned_thread_goes_on_beside_broken_settings() {
    let world = SettingsWorld::new(MapLibrary::small());
    let thread = world.tenant.create(draft(Some("work"))).await.unwrap().id;
    let handle = world.tenant.start(&thread, None, "h/1", "k", None).await;
    let handle = handle.unwrap();
    let stopped = wit::runner::Outcome::Stopped(llm::LlmError {
        kind: "cancelled".to_owned(),
        code: "stopped".to_owned(),
        message: "the driver stopped".to_owned(),
        retry: None,
        sent: false,
        refused: false,
        usage: None,
        partial: String::new(),
    });
    let (token, version) = (handle.token, handle.step.version);
    let submitted = world.tenant.submit(&thread, token, version, stopped, 0);
    submitted.await.unwrap();
    let store = Arc::clone(&world.store) as Arc<dyn StorageBackend>;
    let broken = library_with(json!({"trigger_threshold": "high"}));
    let later = Tenant::new(engine(), TenantContext::new(store, Arc::new(broken)));
    let again = later.start(&thread, None, "h/2", "k2", None).await.unwrap();
    assert_eq!(again.step.kind, "call-llm");
    assert!(later.create(draft(Some("work"))).await.is_err());
}

#[tokio::test]
async fn the_use_of_a_window_is_told_alike_everywhere() {
    let world = SettingsWorld::new(library_with(json!({"trigger_threshold": 0.25})));
    let tenant = &world.tenant;
    let id = tenant.create(draft(Some("work"))).await.unwrap().id;
    let usage = || async {
        let text = tenant.window_usage(&id).await.unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let created = usage().await;
    assert_eq!(
        (&created["tokens"], &created["window"], &created["over"]),
        (&json!(0), &Value::Null, &json!(false))
    );
    let handle = tenant.start(&id, None, "h/1", "k", None).await.unwrap();
    let started = usage().await;
    assert_eq!(started["window"], 200_000);
    assert_eq!(started["trigger"], 50_000);
    assert_eq!(
        started["tokens"], started["estimated"],
        "nothing is reported yet"
    );
    let listed = tenant.list(Filter::All, 10, None).await.unwrap();
    let row = &listed.threads[0];
    let shown = tenant.get(&id).await.unwrap();
    assert_eq!(
        (row.context, row.window, shown.context, shown.window),
        (
            started["tokens"].as_u64().unwrap(),
            Some(200_000),
            row.context,
            Some(200_000)
        )
    );
    let outcome = wit::runner::Outcome::Completion(llm::Completion {
        blocks: r#"[{"type": "text", "text": "fine"}]"#.to_owned(),
        finish: "stop".to_owned(),
        usage: Some(wit::Usage {
            input: 60_000,
            output: 40,
            read: 0,
            write: 0,
            reasoning: 0,
        }),
        session: None,
        id: None,
        model: None,
    });
    let (token, version) = (handle.token, handle.step.version);
    tenant
        .submit(&id, token, version, outcome, 0)
        .await
        .unwrap();
    let now = usage().await;
    let believed = now["tokens"].as_u64().unwrap();
    // What a call cannot have used is not believed: twice what it was admitted with, and 10,000.
    assert!((10_000..60_000).contains(&believed), "{now}");
    assert_eq!(now["ratio"], believed * 1_000_000 / 200_000);
    assert!(now["bytes"].as_u64() > started["bytes"].as_u64(), "{now}");
    let missing = tenant.window_usage("nobody").await.unwrap_err();
    assert!(matches!(
        missing,
        CallError::Refused(wit::Error::NotFound(_))
    ));
}
