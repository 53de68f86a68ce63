//! A C project built on the mount: many small compilations, an archive, linking, rebuilding.

use extant_mount_tests::served::{Served, effort};
use extant_testkit::require;
use std::fmt::Write as _;
use std::path::Path;

const UNITS: usize = 80;

const MAKEFILE: &str = "
CFLAGS = -O1 -g -MMD -Iinclude
objects = $(patsubst src/%.c,obj/%.o,$(wildcard src/*.c))
program: obj/main.o libunits.a
\t$(CC) -o $@ $^
libunits.a: $(filter-out obj/main.o,$(objects))
\trm -f $@ && ar rcs $@ $^
obj/%.o: src/%.c | obj
\t$(CC) $(CFLAGS) -c -o $@ $<
\t@echo $< >> compiled
obj:
\tmkdir obj
clean:
\trm -rf obj program libunits.a
-include $(objects:.o=.d)
";

/// `units` sources, each with a header that the next one includes, and a program that adds them up.
fn write_project(dir: &Path, units: usize) {
    std::fs::create_dir_all(dir.join("src")).unwrap();
    std::fs::create_dir_all(dir.join("include")).unwrap();
    std::fs::write(dir.join("Makefile"), MAKEFILE).unwrap();
    let mut main = "#include <stdio.h>\n".to_owned();
    let mut sum = String::new();
    for n in 0..units {
        let header = format!("#pragma once\n#define UNIT_{n} {n}L\nlong unit_{n}(long);\n");
        std::fs::write(dir.join(format!("include/unit_{n}.h")), header).unwrap();
        let before = n.saturating_sub(1);
        let source = format!(
            "#include <string.h>\n#include \"unit_{n}.h\"\n#include \"unit_{before}.h\"\n\
             static char text[{}] = \"unit {n}\";\n\
             long unit_{n}(long x) {{ return x * UNIT_{n} + UNIT_{before} + strlen(text); }}\n",
            64 + n * 32
        );
        std::fs::write(dir.join(format!("src/unit_{n}.c")), source).unwrap();
        writeln!(main, "#include \"unit_{n}.h\"").unwrap();
        writeln!(sum, "    sum += unit_{n}(3);").unwrap();
    }
    write!(main, "int main(void) {{\n    long sum = 0;\n{sum}    printf(\"%ld\\n\", sum);\n}}\n")
        .unwrap();
    std::fs::write(dir.join("src/main.c"), main).unwrap();
}

/// The output of the program.
fn sum(units: usize) -> String {
    let unit = |n: usize| 3 * n + n.saturating_sub(1) + format!("unit {n}").len();
    format!("{}\n", (0..units).map(unit).sum::<usize>())
}

#[test]
fn a_project_is_built_and_what_changed_is_built_again() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("make"), Program("gcc"), Program("ar"));
    let served = Served::new(512, "");
    let units = UNITS * effort();
    write_project(&served.dir().join("p"), units);
    let make = |script: &str| served.sh(&format!("cd p\n{script}")).out();
    make("make -s -j2");
    assert_eq!(make("./program"), sum(units));
    assert_eq!(make("wc -l < compiled").trim(), (units + 1).to_string());

    // Nothing is older than its sources.
    assert!(make("make -j2").contains("is up to date"), "built for nothing");
    // One header is used in its own unit, in the next one, and in the program.
    make("rm compiled && touch include/unit_5.h && make -s -j2");
    assert_eq!(make("sort compiled"), "src/main.c\nsrc/unit_5.c\nsrc/unit_6.c\n");
    assert_eq!(make("./program"), sum(units));

    // A stripped program runs, too; a running program cannot be written to.
    make("strip -o small program && [ \"$(./small)\" = \"$(./program)\" ]");
    make(
        "cp $(command -v sleep) nap && { ./nap 1 & } && sleep 0.2
          ! sh -c 'echo >> nap' 2> said && grep -q busy said && wait",
    );
    make("make -s clean && [ ! -e obj ] && make -s -j2 && ./program > /dev/null");
    served.finish();
}
