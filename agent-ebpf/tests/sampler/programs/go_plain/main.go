// Go: a goroutine, an interface call, a deferred call and a stack that grows.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"
)

var sink uint64

func burn(seed uint64) uint64 {
	x := seed | 1
	for i := 0; i < 400000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		x ^= x >> 29
	}
	return x
}

//go:noinline
func leafOfSort(seed uint64) uint64 { return burn(seed) + 1 }

type slowNumbers []int

//go:noinline
func (n slowNumbers) Less(i, j int) bool {
	sink += leafOfSort(uint64(n[i]))
	return n[i] < n[j]
}
func (n slowNumbers) Len() int      { return len(n) }
func (n slowNumbers) Swap(i, j int) { n[i], n[j] = n[j], n[i] }

//go:noinline
func leafOfDefer(seed uint64) uint64 { return burn(seed) + 2 }

//go:noinline
func callDeferred(seed uint64) (result uint64) {
	defer func() { result += leafOfDefer(seed) }()
	return seed
}

//go:noinline
func descend(depth int) uint64 {
	var padding [64]byte
	padding[depth&63] = byte(depth)
	if depth == 0 {
		return burn(uint64(padding[1])) + 3
	}
	return descend(depth-1) + uint64(padding[2])
}

//go:noinline
func runGoroutine(end time.Time, done chan uint64) {
	sum := uint64(0)
	for i := 0; time.Now().Before(end); i++ {
		sum += descend(100)
	}
	done <- sum
}

func main() {
	fmt.Println(os.Getpid())
	seconds := 1.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	done := make(chan uint64)
	go runGoroutine(end, done)
	for i := 0; time.Now().Before(end); i++ {
		sort.Sort(slowNumbers{i % 7, 3, 2})
		sink += callDeferred(uint64(i))
	}
	sink += <-done
}
