// Go calls C, C burns, calls back into Go, and Go calls C once more.
package main

/*
#include <stdint.h>
uint64_t call_leaf_in_c(uint64_t seed);
uint64_t call_back_from_c(uint64_t seed);
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

var sink C.uint64_t

func burn(seed uint64) uint64 {
	x := seed | 1
	for i := 0; i < 400000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		x ^= x >> 29
	}
	return x
}

//go:noinline
func leafOfCallback(seed uint64) uint64 { return burn(seed) + 1 }

//export goCallback
func goCallback(seed C.uint64_t) C.uint64_t { return C.uint64_t(leafOfCallback(uint64(seed))) + 1 }

//go:noinline
func enterC(seed uint64) {
	sink += C.call_leaf_in_c(C.uint64_t(seed))
	sink += C.call_back_from_c(C.uint64_t(seed))
}

func main() {
	fmt.Println(os.Getpid())
	seconds := 1.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for i := uint64(0); time.Now().Before(end); i++ {
		enterC(i)
	}
}
