// A program that is busy in one known function and sends its profiles with the SDK for Go.
package main

import (
	"context"
	"os"
	"time"

	"github.com/grafana/pyroscope-go"
)

var (
	sink uint64
	kept [][]byte
)

//go:noinline
func knownBusyFunction(until time.Time) {
	for time.Now().Before(until) {
		for i := uint64(0); i < 1_000_000; i++ {
			sink += i * i
		}
	}
}

//go:noinline
func knownGreedyFunction() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
}

func main() {
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "go-busy",
		ServerAddress:   os.Args[1],
		UploadRate:      3 * time.Second,
		ProfileTypes:    []pyroscope.ProfileType{pyroscope.ProfileCPU, pyroscope.ProfileAllocSpace},
	})
	if err != nil {
		panic(err)
	}
	knownGreedyFunction()
	pyroscope.TagWrapper(context.Background(), pyroscope.Labels("work", "known"), func(context.Context) {
		knownBusyFunction(time.Now().Add(7 * time.Second))
	})
	if err := profiler.Stop(); err != nil {
		panic(err)
	}
}
