// A program that serves its profiles: those of net/http/pprof, of godeltaprof and of fgprof. It prints its address, and
// is busy in known functions until its input ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/felixge/fgprof"
	_ "github.com/grafana/pyroscope-go/godeltaprof/http/pprof"
)

var (
	sink uint64
	kept [][]byte
	lock sync.Mutex
)

//go:noinline
func knownBusyFunction() {
	for i := uint64(0); i < 1_000_000; i++ {
		sink += i * i
	}
}

//go:noinline
func knownGreedyFunction() {
	for i := 0; i < 4; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
	if len(kept) > 64 {
		kept = nil
	}
}

//go:noinline
func knownContendedFunction() {
	lock.Lock()
	time.Sleep(time.Millisecond)
	lock.Unlock()
}

//go:noinline
func knownWaitingFunction() {
	time.Sleep(time.Hour)
}

func main() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	http.DefaultServeMux.Handle("/debug/fgprof", fgprof.Handler())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { panic(http.Serve(listener, nil)) }()
	go knownWaitingFunction()
	for range 2 {
		go func() {
			for {
				knownContendedFunction()
			}
		}()
	}
	go func() {
		for {
			knownBusyFunction()
			knownGreedyFunction()
			time.Sleep(time.Millisecond)
		}
	}()
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
