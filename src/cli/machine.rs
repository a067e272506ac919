//! What figures were measured on, and with: for reports that somebody else reads.

use crate::cli::os;
use crate::runtime::Topology;

/// The machine, as far as it says what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// The processor's name.
    pub(super) cpu: Option<String>,
    /// CPUs that this process may use.
    pub(super) cpus: usize,
    /// The kernel's version.
    pub(super) kernel: Option<String>,
}

impl Machine {
    /// This one.
    pub(super) fn read() -> Machine {
        let topology = Topology::read();
        Machine {
            cpu: os::cpu_model(),
            cpus: topology.cpus_usable(),
            kernel: topology.kernel.map(|kernel| kernel.to_string()),
        }
    }

    /// In one line.
    pub(super) fn text(&self) -> String {
        format!(
            "{}, {} CPUs to use, kernel {}",
            self.cpu.as_deref().unwrap_or("a processor that does not say its name"),
            self.cpus,
            self.kernel.as_deref().unwrap_or("unknown")
        )
    }
}

/// The commit that the program was built from, where whoever built it said so, in the environment
/// variable of that name.
pub(super) const COMMIT: Option<&str> = option_env!("INTERVALE_COMMIT");

/// The program's version, and its commit, if that is known.
pub(super) fn version() -> String {
    match COMMIT {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What somebody else needs to run the same again: command, version, time and machine.
pub(super) fn facts() -> Vec<String> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    vec![command_line(), format!("version {}, {now}", version()), Machine::read().text()]
}

/// The command as it was typed, so that a shell reads it back.
fn command_line() -> String {
    let args = std::env::args_os().skip(1).map(|arg| quoted(&arg.to_string_lossy()));
    std::iter::once("intervale".to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

/// An argument, quoted if a shell would not take it for one word that means itself.
fn quoted(arg: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=.,:/%+@".contains(letter);
    match !arg.is_empty() && arg.chars().all(is_plain) {
        true => arg.to_owned(),
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_where_a_shell_would_split_or_change_them() {
        assert_eq!(quoted("--rates=1e5,2e5"), "--rates=1e5,2e5");
        assert_eq!(quoted("[-1s,1s)"), "'[-1s,1s)'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
    }

    #[test]
    fn the_facts_say_what_ran_and_where() {
        let [command, version, machine] = &facts()[..] else { panic!("three facts") };
        assert!(command.starts_with("intervale"), "{command}");
        assert!(version.contains(env!("CARGO_PKG_VERSION")) && version.ends_with("UTC"));
        assert!(machine.contains(" CPUs to use, kernel "), "{machine}");
    }
}
