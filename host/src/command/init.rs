//! `init`: begins a project in a directory, with a first directive, a model table for the keys that
//! are set, and a line that keeps threads out of version control.
//!
//! A file that is there stays as it is, so the command may be repeated. It reads which keys are
//! set; no value of a variable reaches a file or the answer.

use super::fault;
use super::session::CommandSession;
use cap_std::fs::{Dir, OpenOptions};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use threadkeep::authority::{self, AI_DIR, EnvironmentSnapshot};
use threadkeep::library::models::{BUILT_IN, built_in_default, built_in_keys};
use threadkeep_cli::answer::{InitAnswer, InitFileRow, InitFileState};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

const DIRECTIVE: &str = include_str!("init/describe.md");

/// The suffix of the variables that hold keys.
const KEY_SUFFIX: &str = "_API_KEY";

/// Most other providers that the model table mentions: a person has a handful of keys.
const OTHERS_MAX: usize = 16;

/// Most bytes of a `.gitignore` that is read, to see what it has: people write a few hundred.
const IGNORE_BYTES_MAX: u64 = 1 << 20;

/// The line of a `.gitignore`: what threads keep is data, and may hold secrets.
const IGNORED: &str = ".ai/threads/";

/// Begins a project: in the directory of `--project`, else in the working directory.
pub fn init(
    session: &CommandSession,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let environment = session.environment();
    let project = session.directory_to_begin()?;
    let above = authority::find_project_ambient();
    let ai = project.ai_dir_or_create();
    let ai = ai.map_err(|error| fault::from_authority(&error))?;
    let table = models_table(environment);
    let files = [
        ("directives", "describe.md", DIRECTIVE),
        ("config", "models.yaml", &table),
    ];
    let mut rows = Vec::new();
    for (folder, name, text) in files {
        let path = format!("{folder}/{name}");
        let made = ai.create_dir_all(folder);
        let state = made.and_then(|()| write_new_file(&ai, &path, text));
        rows.push(row(&format!("{AI_DIR}/{path}"), state)?);
    }
    rows.push(row(".gitignore", extend_ignore_file(project.directory()))?);
    let asked = session.common().project.as_ref();
    if let Some(above) = above.filter(|above| asked.is_none() && above.is_absolute()) {
        screen.warn(&format!(
            "{} is a project as well: commands in this directory take the one here from now on",
            above.display()
        ));
    }
    let is_set = |key: &&'static str| environment.get(key).is_some();
    Ok(screen.print_answer(&InitAnswer {
        project: asked.map_or_else(|| ".".to_owned(), |path| path.display().to_string()),
        files: rows,
        model: built_in_default(environment).to_owned(),
        keys: built_in_keys().filter(is_set).map(str::to_owned).collect(),
        keys_known: built_in_keys().map(str::to_owned).collect(),
        exit: CommandExit::Done,
    }))
}

fn row(path: &str, state: std::io::Result<InitFileState>) -> Result<InitFileRow, CommandFault> {
    match state {
        Ok(state) => Ok(InitFileRow {
            path: path.to_owned(),
            state,
        }),
        Err(error) => {
            let message = format!("{path} cannot be written: {error}");
            Err(CommandFault::new("io", message).with_hint("what is written stays: repeat `init`"))
        }
    }
}

/// Writes a file, unless something has its name.
fn write_new_file(dir: &Dir, path: &str, text: &str) -> std::io::Result<InitFileState> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    match dir.open_with(path, &options) {
        Ok(mut file) => {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            Ok(InitFileState::Written)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(InitFileState::Kept),
        Err(error) => Err(error),
    }
}

/// Adds the line for the threads to `.gitignore`, unless the file ignores them already.
fn extend_ignore_file(dir: &Dir) -> std::io::Result<InitFileState> {
    const NAME: &str = ".gitignore";
    let line = format!("{IGNORED}\n");
    if write_new_file(dir, NAME, &line)? == InitFileState::Written {
        return Ok(InitFileState::Written);
    }
    if !dir.metadata(NAME)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    let file = dir.open(NAME)?;
    file.take(IGNORE_BYTES_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    if text.lines().any(ignores_threads) {
        return Ok(InitFileState::Kept);
    }
    let gap = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let mut options = OpenOptions::new();
    options.append(true);
    let mut file = dir.open_with(NAME, &options)?;
    file.write_all(format!("{gap}{line}").as_bytes())?;
    Ok(InitFileState::Extended)
}

fn ignores_threads(line: &str) -> bool {
    let pattern = line.trim().trim_start_matches('/').trim_end_matches('/');
    pattern == AI_DIR || pattern == IGNORED.trim_end_matches('/')
}

/// Writes the model table: the built-in one, with a comment at each provider that says whether its
/// key is set, and a proposal for each other key.
fn models_table(environment: &EnvironmentSnapshot) -> String {
    let mut table = String::from(
        "# Models, their prices, and the providers that serve them; docs/providers.md has every key.\n\
         # ${NAME_API_KEY} and ${NAME_BASE_URL} are read from the environment when a provider is called:\n\
         # no key stands in a file.\nproviders:\n",
    );
    let known: Vec<&str> = built_in_keys().collect();
    for key in &known {
        let name = provider_name(key);
        let said = match environment.get(key) {
            Some(_) => "is set.",
            None => "is not set: without it, no model of this provider can be used.",
        };
        let _ = writeln!(table, "  # {key} {said}");
        let entry = format!("  {name}: ");
        table.extend(lines_that(|line| line.starts_with(&entry)));
    }
    let keys = environment
        .names()
        .filter(|name| name.ends_with(KEY_SUFFIX));
    let others = keys.filter(|key| !known.contains(key)).take(OTHERS_MAX);
    for key in others {
        let (name, address) = (provider_name(key), key.replace(KEY_SUFFIX, "_BASE_URL"));
        let _ = writeln!(
            table,
            "  # {key} is set. If its server speaks the wire of OpenAI, set {address} to its address,\n  \
             # take away the # of the next line, and add its models below.\n  \
             # {name}: {{wire: openai, base_url: \"${{{address}}}\", key: \"${{{key}}}\"}}"
        );
    }
    table.push_str(
        "\n# Windows and outputs in tokens, prices in US dollars for a million of them. Prices change: what a\n\
         # thread is charged is computed from these.\nmodels:\n",
    );
    table.extend(lines_that(|line| line.contains("{provider: ")));
    let model = built_in_default(environment);
    let _ = writeln!(
        table,
        "\n# Names for models: `default` is taken where neither a directive nor --model names one.\n\
         tiers: {{default: {model}, fast: {model}}}"
    );
    table
}

/// The lines of the built-in table with this property, each with its end.
fn lines_that(chosen: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let lines = BUILT_IN.lines().filter(move |line| chosen(line));
    lines.map(|line| format!("{line}\n"))
}

/// The name of the provider that a key is for: `openai` for `OPENAI_API_KEY`.
fn provider_name(key: &str) -> String {
    key.trim_end_matches(KEY_SUFFIX).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadkeep::library::models::ModelTable;

    fn environment(pairs: &[(&str, &str)]) -> EnvironmentSnapshot {
        let pairs = pairs.iter();
        EnvironmentSnapshot::from_pairs(
            pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    /// The table is the built-in one, whichever keys are set, and holds no value.
    #[test]
    fn written_table_is_the_built_in_one() {
        for (set, model) in [
            (&[][..], "gpt-4o-mini"),
            (&[("OPENAI_API_KEY", "secret-1")], "gpt-4o-mini"),
            (&[("ANTHROPIC_API_KEY", "secret-1")], "claude-haiku-4-5"),
            (
                &[
                    ("GROQ_API_KEY", "secret-2"),
                    ("ANTHROPIC_API_KEY", "secret-1"),
                ],
                "claude-haiku-4-5",
            ),
        ] {
            let environment = environment(set);
            let text = models_table(&environment);
            let written = ModelTable::load(Some(&text), environment.clone()).expect(&text);
            let built_in = ModelTable::built_in(environment).expect("it is valid");
            assert_eq!(written.names(), built_in.names());
            assert_eq!(written.resolve("default").expect("there").name, model);
            let names = |table: &ModelTable| -> Vec<String> {
                table.providers().map(|origins| origins.name).collect()
            };
            assert_eq!(names(&written), names(&built_in));
            assert!(!text.contains("secret"), "{text}");
            for (key, _) in set {
                assert!(text.contains(&format!("{key} is set.")), "{text}");
            }
        }
    }

    /// What is proposed in a comment is right once its mark is taken away.
    #[test]
    fn proposals_are_valid() {
        let environment =
            environment(&[("GROQ_API_KEY", "k"), ("GROQ_BASE_URL", "http://[::1]:1")]);
        let text = models_table(&environment).replace("# groq:", "groq:");
        let table = ModelTable::load(Some(&text), environment).expect(&text);
        assert!(table.provider("groq").is_ok());
    }

    #[test]
    fn a_line_that_ignores_threads_is_known() {
        for (line, expected) in [
            (".ai/threads/", true),
            ("/.ai/threads", true),
            (" .ai/ ", true),
            (".ai", true),
            ("# .ai/threads/", false),
            ("!.ai/threads/", false),
            (".ai/config", false),
        ] {
            assert_eq!(ignores_threads(line), expected, "{line}");
        }
    }
}
