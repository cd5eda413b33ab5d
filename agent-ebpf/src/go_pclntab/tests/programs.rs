//! Programs of Go: plain, stripped, position-independent, with C.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::elf::{BoundedFile, ElfFile};
use crate::go_pclntab::GoFunctionTable;

pub const PLAIN_PROGRAM: &str = r#"package main

import (
	"fmt"
	"sort"
)

type shape interface{ area() float64 }
type square struct{ side float64 }

//go:noinline
func (s *square) area() float64 { return s.side * s.side }

//go:noinline
func spin[T int | float64](n T) T {
	var sum T
	for i := T(0); i < n; i++ {
		sum += i * i
	}
	return sum
}

func main() {
	shapes := []shape{&square{2}, &square{1}}
	sort.Slice(shapes, func(i, j int) bool { return shapes[i].area() < shapes[j].area() })
	fmt.Println(spin(10), spin(3.5), shapes[0].area())
}
"#;

pub const C_PROGRAM: &str = r#"package main

/*
#include <stdlib.h>
extern int goCompare(void*, void*);
static int compare(const void *a, const void *b) { return goCompare((void*)a, (void*)b); }
static long sorted(long n) {
	int values[64];
	for (int i = 0; i < 64; i++) values[i] = (i * 7919) % 64;
	qsort(values, 64, sizeof(int), compare);
	return values[n & 63];
}
*/
import "C"
import (
	"fmt"
	"unsafe"
)

//export goCompare
func goCompare(a, b unsafe.Pointer) C.int { return *(*C.int)(a) - *(*C.int)(b) }

func main() { fmt.Println(C.sorted(3)) }
"#;

/// Program that `go build` makes here.
pub struct GoProgram {
    folder: tempfile::TempDir,
    with_c: bool,
}

impl GoProgram {
    pub fn new(source: &str, with_c: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("main.go"), source).unwrap();
        std::fs::write(folder.path().join("go.mod"), "module example.test/program\n\ngo 1.18\n").unwrap();
        Self { folder, with_c }
    }

    /// Builds the program with these arguments. None if Go, or a C compiler that it needs, is missing.
    pub fn build(&self, name: &str, arguments: &[&str]) -> Option<PathBuf> {
        let output = self.folder.path().join(name);
        let mut command = Command::new("go");
        command.args(["build", "-o"]).arg(&output).args(arguments).arg(".").current_dir(self.folder.path());
        command.env("CGO_ENABLED", if self.with_c { "1" } else { "0" }).env("GOTOOLCHAIN", "local");
        let Ok(result) = command.output() else {
            println!("skip: go is not installed");
            return None;
        };
        let message = String::from_utf8_lossy(&result.stderr);
        assert!(result.status.success(), "{message}");
        Some(output)
    }
}

pub fn open(path: &Path) -> ElfFile {
    let file = BoundedFile::new(std::fs::File::open(path).unwrap()).unwrap();
    ElfFile::open(Arc::new(file)).unwrap()
}

pub fn table_of(file: &ElfFile) -> GoFunctionTable {
    GoFunctionTable::find(file).unwrap().unwrap()
}
