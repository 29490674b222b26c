//! The password for the login of `diorite admin`: from a file, from the environment, or typed.
//!
//! Always true: the password is not an argument, which everybody on the machine could read; a typed password is not
//! shown. Left out: storing it.

use crate::client::AdminError;
use diorite_base::basic::Credentials;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::fs::{File, read_to_string};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// The environment variable that holds the password.
const VARIABLE: &str = "DIORITE_PASSWORD";

/// The login of the role, with its password.
pub(crate) fn find(user: &str, file: Option<&Path>) -> Result<Credentials, AdminError> {
    let missing = |why: String| AdminError::NoPassword(user.to_owned(), why);
    let password = match (file, std::env::var(VARIABLE)) {
        (Some(file), _) => {
            let text = read_to_string(file).map_err(|error| missing(format!("{}: {error}", file.display())))?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        (None, Ok(password)) => password,
        (None, Err(_)) => typed(user).map_err(|error| {
            missing(format!("there is no terminal to ask at ({error}); use --password-file or {VARIABLE}"))
        })?,
    };
    Ok(Credentials { user: user.to_owned(), password })
}

/// Asks at the terminal, wherever standard input and output lead.
fn typed(user: &str) -> io::Result<String> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let before = tcgetattr(&terminal)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    write!(terminal, "password of {user}: ")?;
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let mut line = String::new();
    let read = BufReader::new(&terminal).read_line(&mut line);
    tcsetattr(&terminal, OptionalActions::Flush, &before)?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_file_is_the_password() {
        let path = std::env::temp_dir().join(format!("diorite-password-{}", std::process::id()));
        for (text, password) in [("sesame\n", "sesame"), ("a b \r\nrest\n", "a b "), ("", "")] {
            std::fs::write(&path, text).expect("a file");
            let found = find("ann", Some(&path)).expect("a password");
            assert_eq!((found.user.as_str(), found.password.as_str()), ("ann", password));
        }
        std::fs::remove_file(&path).expect("it is there");
        assert!(find("ann", Some(&path)).expect_err("no file").to_string().contains("no password for the role ann"));
    }
}
