//! One operation on several devices in parallel.

use extant_base::Result;
use std::thread;

/// Runs `work` for each of `targets`, in parallel if `together`. Returns the results in order. The
/// caller's thread runs the first one.
pub(crate) fn on_all<T: Sync>(
    targets: &[T],
    together: bool,
    work: impl Fn(usize, &T) -> Result<()> + Sync,
) -> Vec<Result<()>> {
    if !together || targets.len() < 2 {
        return targets.iter().enumerate().map(|(n, target)| work(n, target)).collect();
    }
    let work = &work;
    thread::scope(|scope| {
        let mut others = Vec::with_capacity(targets.len() - 1);
        for (n, target) in targets.iter().enumerate().skip(1) {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || work(n, target));
            others.push((n, spawned));
        }
        let mut done = vec![work(0, &targets[0])];
        for (n, spawned) in others {
            done.push(match spawned {
                Ok(thread) => match thread.join() {
                    Ok(answer) => answer,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
                // The system gives no thread: run it in this thread.
                Err(_) => work(n, &targets[n]),
            });
        }
        done
    })
}
