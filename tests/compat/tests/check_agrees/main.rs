//! A seed damages structures of small volumes, half of them with right checksums. `extant check`
//! and `e2fsck -fn` must both find an error in a volume, or neither.
//!
//! ```text
//!   volume ─damage─┬── as it is ───────────┬─► check_device ─┐
//!                  └── checksums set right ─┴─► e2fsck -fn ───┴─► same, or a row of `explained`
//! ```
//! `EXTANT_SEED` selects others, `EXTANT_ROUNDS` the number for each volume, `EXTANT_SOAK`
//! multiplies it. `EXTANT_AGREE=csum:153` judges that one alone, `EXTANT_KEEP=DIR` leaves it in
//! DIR.

mod explained;
mod fields;

use explained::Difference;
use extant::MemoryDevice;
use extant::check::{self, Options, Severity};
use extant_compat_tests::damage;
use extant_compat_tests::sums::Sums;
use extant_compat_tests::volume::{self, Rich};
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::report::run_cases;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Damaged volumes of one case.
const BATCH: u64 = 25;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How often each verdict occurred, and each difference.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<String, u64>>);

impl Counts {
    fn add<E>(&self, what: &str) -> Result<(), E> {
        *self.0.lock().expect("no lane panics here").entry(what.to_owned()).or_default() += 1;
        Ok(())
    }
}

#[test]
fn extant_and_e2fsck_find_fault_with_the_same_volumes() {
    extant_testkit::require!(E2fsprogs);
    let rounds = number("EXTANT_ROUNDS").unwrap_or(50 * number("EXTANT_SOAK").unwrap_or(1));
    let first = number("EXTANT_SEED").unwrap_or(0) % (1 << 40);
    let only = std::env::var("EXTANT_AGREE").unwrap_or_default();
    let (only, one) = only.split_once(':').unwrap_or((&only, ""));
    let volumes: Vec<(Rich, Option<Sums>)> = volume::names()
        // e2fsck gets a volume with checksums of data without that feature bit, so its bytes
        // differ.
        .filter(|name| *name != "sums" && (only.is_empty() || *name == only))
        .map(volume::make)
        .map(|rich| {
            let sums = Sums::of(&rich);
            (rich, sums)
        })
        .collect();
    let counts = Counts::default();
    if let Ok(seed) = one.parse() {
        let (rich, sums) = &volumes[0];
        let verdict = judge(rich, sums.as_ref(), seed, &counts, &Scratch::new());
        println!("{verdict:?}: {:?}", counts.0.lock().expect("no lane panicked"));
        return verdict.expect("the same verdict");
    }
    let batches: Vec<(usize, u64)> = (0..rounds.div_ceil(BATCH))
        .flat_map(|n| (0..volumes.len()).map(move |volume| (volume, first + n * BATCH)))
        .collect();
    run_cases(
        "check agrees",
        &batches,
        |(volume, seed)| format!("{}:{seed}", volumes[*volume].0.name),
        |(volume, seed)| {
            let (rich, sums) = &volumes[*volume];
            let scratch = Scratch::new();
            let seeds = *seed..*seed + BATCH;
            let all =
                seeds.filter_map(|seed| judge(rich, sums.as_ref(), seed, &counts, &scratch).err());
            let wrong: Vec<String> = all.collect();
            if wrong.is_empty() { Ok(String::new()) } else { Err(wrong.join("\n    ")) }
        },
    );
    for (what, count) in &*counts.0.lock().expect("no lane panicked") {
        println!("check agrees: {count:6} {what}");
    }
}

/// Damages `rich` by `seed` and runs both checks.
fn judge(
    rich: &Rich,
    sums: Option<&Sums>,
    seed: u64,
    counts: &Counts,
    scratch: &Scratch,
) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut bytes = rich.bytes.clone();
    let mut done = match seed % 2 {
        0 => damage::damage(rich, &mut bytes, &mut rng),
        _ => fields::damage(rich, &mut bytes, &mut rng),
    };
    if let (Some(sums), 0..=3) = (sums, seed % 5) {
        sums.set_all(&rich.bytes, &mut bytes);
        done += "; summed";
    }
    let image = scratch.file("damaged");
    std::fs::write(&image, &bytes).map_err(|error| error.to_string())?;
    if let Ok(dir) = std::env::var("EXTANT_KEEP") {
        let kept = std::path::Path::new(&dir).join(format!("{}-{seed}", rich.name));
        std::fs::copy(&image, kept).map_err(|error| error.to_string())?;
    }
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let options = Options { threads: 2, ..Options::default() };
    let ours = check::check_device(device, &options, &());
    let found: Vec<(String, String)> = match &ours {
        Ok(report) if report.clean => Vec::new(),
        Ok(report) => {
            let errors = report.findings.iter().filter(|f| f.severity == Severity::Error);
            errors.map(|finding| (finding.what.name().to_owned(), finding.to_string())).collect()
        }
        Err(error) => vec![("refused".to_owned(), error.to_string())],
    };
    let theirs = e2fsck(&image, None);
    let said = explained::lines(&theirs.text);
    if theirs.exit & 4 == 0 && theirs.exit != 0 && theirs.exit != 8 {
        return counts.add("e2fsck did not end by itself");
    }
    let difference = match (theirs.exit != 0, !found.is_empty()) {
        (true, true) => return counts.add("both find fault"),
        (false, false) => return counts.add("neither finds fault"),
        (true, false) => Difference::Missed(&said),
        (false, true) => Difference::More(&found, &said),
    };
    match explained::reason(rich.name, &difference) {
        Some(reason) => counts.add(reason),
        None => {
            let detail = match &difference {
                Difference::Missed(said) => format!("extant finds nothing, e2fsck says {said:?}"),
                Difference::More(found, said) => {
                    format!("extant finds {found:?}, e2fsck only says {said:?}")
                }
            };
            Err(format!("{}:{seed}: {done}: {detail}", rich.name))
        }
    }
}
