// A program whose profiles of locks and memory count from its start, as most Go programs serve them: it says its address,
// works once for each call of /work, and ends with its input.
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
)

var (
	lock sync.Mutex
	kept [][]byte
	sink []byte
)

//go:noinline
func knownHolder(held chan<- struct{}, enough <-chan struct{}) {
	lock.Lock()
	close(held)
	<-enough
	lock.Unlock()
}

//go:noinline
func knownWaiter(waiting chan<- struct{}, done chan<- struct{}) {
	close(waiting)
	lock.Lock()
	lock.Unlock()
	close(done)
}

//go:noinline
func knownReceiver(done <-chan struct{}) {
	<-done
}

//go:noinline
func knownGreedyFunction(turns int) {
	for turn := 0; turn < turns; turn++ {
		kept = append(kept, make([]byte, 96<<10))
		for size := 16; size < 4096; size += 304 {
			sink = make([]byte, size)
		}
	}
}

// work has somebody wait for a lock, and somebody for a channel, and allocates.
func work(turns int) {
	for turn := 0; turn < turns; turn++ {
		held, waiting, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		enough := make(chan struct{})
		go knownHolder(held, enough)
		<-held
		go knownWaiter(waiting, done)
		<-waiting
		// Nobody tells when another one waits for a lock: most do after so many turns of the scheduler.
		for yields := 0; yields < 1000; yields++ {
			runtime.Gosched()
		}
		close(enough)
		knownReceiver(done)
	}
	knownGreedyFunction(100 * turns)
	// What a heap profile says is of the last collection.
	runtime.GC()
}

func main() {
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	runtime.MemProfileRate = 16 << 10
	http.HandleFunc("/work", func(out http.ResponseWriter, request *http.Request) {
		var turns int
		if _, err := fmt.Sscan(request.URL.Query().Get("turns"), &turns); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		work(turns)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		// Whoever started this has gone, or wants it to go.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	panic(http.Serve(listener, nil))
}
