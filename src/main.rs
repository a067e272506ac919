//! The `intervale` command: see [`intervale::cli`].

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if stdout::was_closed() {
        intervale::cli::note_closed_stdout();
    }
    intervale::cli::main()
}

/// Whether there was a standard output when the process began. Before `main`, Rust's runtime opens
/// `/dev/null` in the place of a closed one (`>&-`), where results would vanish without a word; so
/// this looks before the runtime does.
#[cfg(target_os = "linux")]
mod stdout {
    use std::sync::atomic::{AtomicBool, Ordering};

    static CLOSED: AtomicBool = AtomicBool::new(false);

    /// Called by the C runtime with the other initialisers of the program.
    #[used]
    // SAFETY: the section is an array of pointers to such functions, which are called one by one
    // on the only thread there is. `look` needs nothing of Rust's runtime.
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        // SAFETY: `F_GETFD` reads a flag of a descriptor, of any number, and no memory of ours.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        // Pairs with the load in `was_closed`, on the same thread.
        CLOSED.store(flags == -1, Ordering::Relaxed);
    }

    pub(super) fn was_closed() -> bool {
        // Pairs with the store in `look`, on the same thread.
        CLOSED.load(Ordering::Relaxed)
    }
}
