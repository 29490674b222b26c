//! The configuration of a node: the command line, the environment, and a file (`--config FILE`).
//!
//! Always true: what is given in several places is taken from the first of command line, environment, file and default; the file and the environment know the
//! options of `diorite start` by their names, and nothing else; a value is read by the same rules wherever it stands. Left out: what may change while a node
//! runs, which the node decides.

use clap::{ArgAction, Args, Command, FromArgMatches};
use diorite_node::{SamePort, StartOptions};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::{Table, Value};

/// The option that names the file, and its name in the environment.
const OPTION: &str = "config";
const VARIABLE: &str = "DIORITE_CONFIG";
/// The environment names an option by this and its name in capitals, with `_` for `-`.
const PREFIX: &str = "DIORITE_START_";

/// Options of `diorite start`, wherever they are given.
#[derive(Args)]
pub struct StartArguments {
    /// A file (TOML) that gives options by their names, without the dashes in front: `cql-port = 9042`, `data-dir = ["/data/1", "/data/2"]`. An option of the
    /// command line or of the environment (DIORITE_START_CQL_PORT) takes precedence. Also: DIORITE_CONFIG.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub options: StartOptions,
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is not there, or may not be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, and what was expected.
        reason: String,
    },
    /// An option that there is not.
    #[error("{}: there is no option '{key}'{}", path.display(), similar.as_ref().map_or(String::new(), |name| format!("; it is called '{name}'")))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it says.
        key: String,
        /// What may be meant.
        similar: Option<String>,
    },
    /// A value that the option cannot have.
    #[error("{}: {key}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The option.
        key: String,
        /// What it can have.
        reason: String,
    },
}

/// Options that a file gives, with their values as a command line would give them.
struct FileOptions {
    path: PathBuf,
    given: Vec<(String, Vec<String>)>,
}

/// The command with the values of the environment and of the file that `arguments` name.
pub fn with_sources(command: Command, arguments: &[String]) -> Result<Command, ConfigError> {
    if arguments.get(1).map(String::as_str) != Some("start") {
        return Ok(command);
    }
    let file = file(named_file(&arguments[2..])).map(|path| read(&path, &start_command())).transpose()?;
    Ok(command.mut_subcommand("start", |start| with_file(with_environment(start), file.as_ref())))
}

/// Reads a file as a node would that gets nothing else: the options that result.
pub fn check(path: &Path) -> Result<StartOptions, ConfigError> {
    let start = start_command();
    let file = read(path, &start)?;
    let matches =
        with_file(start, Some(&file)).try_get_matches_from(["start"]).map_err(|error| of_file(path, &error))?;
    let options = StartOptions::from_arg_matches(&matches).map_err(|error| of_file(path, &error))?;
    options.check_ports().map_err(|SamePort { one, other, port }| {
        // Named is a key that the file has: the other port may be that which nodes have without one.
        let (key, other) = if file.has(one) { (one, other) } else { (other, one) };
        let reason = format!("it is {port}, as {other} is");
        ConfigError::Value { path: path.to_owned(), key: key.to_owned(), reason }
    })?;
    Ok(options)
}

/// Reads again what a node was started with: for options that may change while it runs.
pub fn read_again(path: &Path) -> Result<StartOptions, ConfigError> {
    let file = read(path, &start_command())?;
    let command = with_file(with_environment(start_command()), Some(&file));
    let arguments = std::env::args().skip(1);
    let matches = command.try_get_matches_from(arguments).map_err(|error| of_file(path, &error))?;
    StartOptions::from_arg_matches(&matches).map_err(|error| of_file(path, &error))
}

/// The file that the command line names, or else the environment.
pub fn file(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from))
}

fn start_command() -> Command {
    StartArguments::augment_args(Command::new("start"))
}

fn of_file(path: &Path, error: &clap::Error) -> ConfigError {
    ConfigError::Malformed { path: path.to_owned(), reason: first_line(error) }
}

/// The error of the command line in one line, without what it adds about usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

fn named_file(arguments: &[String]) -> Option<PathBuf> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = argument.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

fn with_environment(command: Command) -> Command {
    command.mut_args(|argument| {
        let Some(name) = argument.get_long().filter(|name| *name != OPTION && *name != "help") else { return argument };
        let variable = format!("{PREFIX}{}", name.replace('-', "_").to_uppercase());
        // Lives as long as the process, as the command does.
        argument.env(&*variable.leak()).hide_env(true)
    })
}

fn with_file(command: Command, file: Option<&FileOptions>) -> Command {
    let Some(file) = file else { return command };
    command.mut_args(|argument| {
        let name = argument.get_long().unwrap_or_default().to_owned();
        let Some((_, values)) = file.given.iter().find(|(key, _)| *key == name) else { return argument };
        let values = values.iter().map(|value| &*value.clone().leak());
        argument.default_values(values).required(false)
    })
}

fn read(path: &Path, start: &Command) -> Result<FileOptions, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let malformed = |reason: String| ConfigError::Malformed { path: path.to_owned(), reason };
    let table: Table = toml::from_str(&text).map_err(|error| malformed(error.to_string().trim_end().to_owned()))?;
    let mut given = Vec::new();
    for (key, value) in &table {
        let values = values_of(path, key, value, start)?;
        // A flag that is off is one that is not given.
        if !values.is_empty() {
            given.push((key.clone(), values));
        }
    }
    let file = FileOptions { path: path.to_owned(), given };
    file.check_pairs()?;
    Ok(file)
}

impl FileOptions {
    fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(key, _)| key == name)
    }

    /// What the command line checks of options that go together holds for a file, too.
    fn check_pairs(&self) -> Result<(), ConfigError> {
        let lacks = |key: &str, other: &str| ConfigError::Value {
            path: self.path.clone(),
            key: key.to_owned(),
            reason: format!("it needs '{other}' beside it"),
        };
        for (key, other) in [
            ("tls-certificate", "tls-key"),
            ("tls-key", "tls-certificate"),
            ("tls-client-authorities", "tls-certificate"),
        ] {
            if self.has(key) && !self.has(other) {
                return Err(lacks(key, other));
            }
        }
        Ok(())
    }
}

/// The values of one option, each of which the option accepts.
fn values_of(path: &Path, key: &str, value: &Value, start: &Command) -> Result<Vec<String>, ConfigError> {
    let wrong = |reason: String| ConfigError::Value { path: path.to_owned(), key: key.to_owned(), reason };
    let known = |name: &str| start.get_arguments().find(|argument| argument.get_long() == Some(name) && name != OPTION);
    let Some(argument) = known(key) else {
        let dashed = key.replace('_', "-");
        let similar = known(&dashed).map(|_| dashed);
        return Err(ConfigError::Unknown { path: path.to_owned(), key: key.to_owned(), similar });
    };
    let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
    let is_list = matches!(argument.get_action(), ArgAction::Append);
    let values = match value {
        Value::Array(_) if !is_list => return Err(wrong("it has one value, not a list".to_owned())),
        Value::Array(values) => values.iter().map(|value| text_of(value).ok_or_else(|| wrong_kind(value))).collect(),
        value => text_of(value).ok_or_else(|| wrong_kind(value)).map(|text| vec![text]),
    };
    let values: Vec<String> = values.map_err(&wrong)?;
    if is_flag {
        return match value {
            Value::Boolean(true) => Ok(values),
            Value::Boolean(false) => Ok(Vec::new()),
            _ => Err(wrong("it is true or false".to_owned())),
        };
    }
    // As the command line would read each of them.
    for value in &values {
        let alone = Command::new("start").arg(argument.clone().required(false)).no_binary_name(true);
        alone.try_get_matches_from([format!("--{key}={value}")]).map_err(|error| wrong(first_line(&error)))?;
    }
    Ok(values)
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is_so) => Some(is_so.to_string()),
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => None,
    }
}

fn wrong_kind(value: &Value) -> String {
    format!("a {} is none of its values", value.type_str())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn refused(text: &str) -> String {
        let file = file(text);
        let message = check(file.path()).unwrap_err().to_string();
        message.replace(&format!("{}: ", file.path().display()), "")
    }

    fn options(text: &str, arguments: &[&str]) -> StartOptions {
        let file = file(text);
        let path = file.path().display().to_string();
        let read = read(file.path(), &start_command()).unwrap();
        let arguments = ["start", "--config", &path].into_iter().chain(arguments.iter().copied());
        let matches = with_file(start_command(), Some(&read)).try_get_matches_from(arguments).unwrap();
        let found = StartArguments::from_arg_matches(&matches).unwrap();
        assert_eq!(found.config.as_deref(), Some(file.path()));
        found.options
    }

    #[test]
    fn a_file_gives_options_by_their_names_and_the_command_line_takes_precedence() {
        let text = "data-dir = [\"/a\", \"/b\"]\ncql-port = 9100\nauth = true\nmemory-limit = \"1GiB\"\nguard = false\nbloom-bits = 9.5\n";
        let found = options(text, &[]);
        assert_eq!(found.data_dir, ["/a", "/b"].map(PathBuf::from));
        assert_eq!((found.cql_port, found.auth, found.guard, found.node_port), (9_100, true, false, 7_100));
        assert_eq!(found.memory_limit_bytes(), 1 << 30);
        let found = options(text, &["--cql-port", "9200", "--data-dir", "/c"]);
        assert_eq!((found.cql_port, found.data_dir), (9_200, vec![PathBuf::from("/c")]));
        assert!(!options("data-dir = \"/a\"\nauth = false", &[]).auth);
    }

    #[test]
    fn what_a_file_cannot_say_is_refused_by_name() {
        assert_eq!(refused("data-dirs = \"/a\""), "there is no option 'data-dirs'");
        assert_eq!(refused("data_dir = \"/a\""), "there is no option 'data_dir'; it is called 'data-dir'");
        assert_eq!(refused("config = \"/a\""), "there is no option 'config'");
        assert_eq!(refused("listen = [\"127.0.0.1\"]"), "listen: it has one value, not a list");
        assert_eq!(refused("auth = \"yes\""), "auth: it is true or false");
        assert_eq!(refused("[data-dir]\na = 1"), "data-dir: a table is none of its values");
        assert!(refused("cql-port = 70000").starts_with("cql-port: invalid value '70000'"));
        assert!(refused("cql-port = ").contains("line 1"));
        assert_eq!(refused("data-dir = \"/a\"\ncql-port = 7000"), "cql-port: it is 7000, as http-port is");
        assert_eq!(refused("data-dir = \"/a\"\nhttp-port = 9042"), "http-port: it is 9042, as cql-port is");
        for (option, value) in
            [("max-connections", "0"), ("memory-limit", "\"1KB\""), ("bloom-bits", "1000"), ("tablets-per-node", "0")]
        {
            let said = refused(&format!("data-dir = \"/a\"\n{option} = {value}"));
            assert!(said.starts_with(&format!("{option}: invalid value")), "{said}");
        }
        assert!(refused("cql-port = 9042").contains("--data-dir"), "it is required");
        assert_eq!(refused("data-dir = \"/a\"\ntls-key = \"k\""), "tls-key: it needs 'tls-certificate' beside it");
        assert!(matches!(check(Path::new("/nowhere")), Err(ConfigError::Unreadable { .. })));
    }

    #[test]
    fn the_environment_names_options_in_capitals() {
        let command = with_environment(start_command());
        let port = command.get_arguments().find(|argument| argument.get_long() == Some("cql-port")).unwrap();
        assert_eq!(port.get_env().unwrap(), "DIORITE_START_CQL_PORT");
        assert!(
            command.get_arguments().all(|argument| argument.get_long() != Some(OPTION) || argument.get_env().is_none())
        );
    }

    #[test]
    fn only_the_start_of_a_node_has_a_file() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(named_file(&words("--auth --config a.toml")), Some("a.toml".into()));
        assert_eq!(named_file(&words("--config=b.toml")), Some("b.toml".into()));
        assert_eq!(named_file(&words("--auth --config")), None);
        let command = Command::new("diorite").subcommand(start_command());
        assert!(with_sources(command, &words("diorite admin status --config /nowhere")).is_ok());
    }
}
