//! A project whose models answer as a judge server decides, and the command that runs in it.

use crate::cli::fixture::CliProject;
use serde_json::Value;
use threadkeep_tests::binary::{self, ProcessOutput};
use threadkeep_tests::judge::{JudgeServer, ServerAnswer};
use threadkeep_tests::llmock::MockWire;

/// The one tool that these projects grant.
const CAPABILITY: &str = "execute.tool.read_file";

/// Settings in which the test projects differ: each has one provider `p`, one model and the
/// directive `go`.
pub struct ProjectPlan<'a> {
    /// The wire of the provider.
    pub wire: MockWire,
    /// Path of its address; `None` is the usual one of the wire.
    pub base_path: Option<&'a str>,
    /// Further keys of the provider's entry, such as `stream_options: false`.
    pub provider_keys: &'a str,
    /// Name of the model.
    pub model: &'a str,
    /// Further keys of the model's entry.
    pub model_keys: &'a str,
    /// Price of a million tokens of either kind, in US dollars.
    pub prices: [&'a str; 2],
    /// Caps of the directive.
    pub limits: &'a str,
}

impl Default for ProjectPlan<'_> {
    /// The OpenAI project, whose tokens cost 1000 nano-USD to read and 2000 to write.
    fn default() -> Self {
        Self {
            wire: MockWire::OpenAi,
            base_path: None,
            provider_keys: "",
            model: "m",
            model_keys: "",
            prices: ["1.00", "2.00"],
            limits: "turns: 5, spend: 1.00",
        }
    }
}

impl ProjectPlan<'_> {
    /// The usual project on this wire.
    pub fn of_wire(wire: MockWire) -> Self {
        Self {
            wire,
            ..Self::default()
        }
    }

    /// Makes the project with its provider at this host and port.
    pub fn make_project(&self, address: &str) -> CliProject {
        let project = CliProject::empty();
        project.write(".ai/config/models.yaml", &self.models(address));
        let directive = format!(
            "---\nlimits: {{{}}}\ncapabilities: [{CAPABILITY}]\n---\n\
             Read notes.txt and say what it holds.\n",
            self.limits
        );
        project.write(".ai/directives/go.md", &directive);
        project.write("notes.txt", "oats\nmilk\ncoffee\n");
        project.write("other.txt", "tea\n");
        project
    }

    fn models(&self, address: &str) -> String {
        let usual = match self.wire {
            MockWire::OpenAi => "/v1",
            MockWire::Anthropic => "",
        };
        let base = format!("http://{address}{}", self.base_path.unwrap_or(usual));
        let provider = with_comma(self.provider_keys);
        let (model, keys) = (self.model, with_comma(self.model_keys));
        let [input, output] = self.prices;
        format!(
            "providers:\n  p: {{wire: {}, base_url: \"{base}\"{provider}}}\n\
             models:\n  {model}: {{provider: p, window: 32000, output: 1000, \
             prices: {{input: \"{input}\", output: \"{output}\"}}{keys}}}\n\
             tiers: {{default: {model}}}\n",
            self.wire.as_str()
        )
    }
}

fn with_comma(keys: &str) -> String {
    match keys {
        "" => String::new(),
        keys => format!(", {keys}"),
    }
}

/// A project and the server of its provider.
pub struct JudgedProject {
    pub project: CliProject,
    pub server: JudgeServer,
}

impl JudgedProject {
    pub fn new(
        plan: &ProjectPlan<'_>,
        judge: impl Fn(usize, &Value, &str) -> ServerAnswer + Send + Sync + 'static,
    ) -> Self {
        let server = JudgeServer::start(judge);
        let project = plan.make_project(&server.address());
        Self { project, server }
    }

    /// Runs the directive as thread `t`; returns the document of the run.
    pub fn run(&self) -> Value {
        self.project.json(&["run", "go", "--id", "t"])
    }

    /// Sends one line to the chat `c`, which is created with the first.
    pub fn say(&self, line: &str) -> ProcessOutput {
        let known = self.project.exists(".ai/threads/registry.db");
        let arguments: &[&str] = if known {
            &["chat", "c"]
        } else {
            &["chat", "--id", "c", "--capability", CAPABILITY]
        };
        binary::run_with_input(self.project.command(arguments), &format!("{line}\n"))
    }

    /// Returns the spend of thread `t`'s account, after checking that nothing is held.
    pub fn spent_amount(&self) -> String {
        let account = self.project.json(&["budget", "show", "t"])["account"].clone();
        assert_eq!(account["held"], "0.00", "{account}");
        account["spent"].as_str().expect("a decimal").to_owned()
    }

    /// The bodies of the events of this type in thread `t`.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let shown = self.project.json(&["show", "t", "--events", "100"]);
        let events = shown["events"].as_array().expect("events").iter();
        let of_kind = events.filter(|event| event["type"] == kind);
        of_kind.map(|event| event["body"].clone()).collect()
    }
}
