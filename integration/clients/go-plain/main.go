// A program that is busy in one known function, has another that keeps memory, and sends what runtime/pprof writes of
// both in two ways: as JSON to the call for pushes, and as a form to /ingest.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
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

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func send(url, kind string, body io.Reader) {
	response, err := http.Post(url, kind, body)
	check(err)
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	check(err)
	if response.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%s: %d %s", url, response.StatusCode, said))
	}
}

type label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type sample struct {
	RawProfile []byte `json:"rawProfile"`
}

type series struct {
	Labels  []label  `json:"labels"`
	Samples []sample `json:"samples"`
}

// push sends profiles by their metric's name.
func push(server string, profiles map[string][]byte) {
	request := map[string][]series{}
	for name, profile := range profiles {
		labels := []label{{"__name__", name}, {"service_name", "go-pushed"}, {"__delta__", "false"}}
		request["series"] = append(request["series"], series{labels, []sample{{profile}}})
	}
	body, err := json.Marshal(request)
	check(err)
	send(server+"/push.v1.PusherService/Push", "application/json", bytes.NewReader(body))
}

func ingest(server string, begin time.Time, profile []byte) {
	body := &bytes.Buffer{}
	form := multipart.NewWriter(body)
	part, err := form.CreateFormFile("profile", "profile.pprof")
	check(err)
	_, err = part.Write(profile)
	check(err)
	check(form.Close())
	query := url.Values{
		"name":    {"go-ingested"},
		"from":    {fmt.Sprint(begin.UnixNano())},
		"until":   {fmt.Sprint(time.Now().UnixNano())},
		"spyName": {"gospy"},
		"format":  {"pprof"},
	}
	send(server+"/ingest?"+query.Encode(), form.FormDataContentType(), body)
}

func main() {
	begin := time.Now()
	cpu := &bytes.Buffer{}
	check(pprof.StartCPUProfile(cpu))
	knownGreedyFunction()
	pprof.Do(context.Background(), pprof.Labels("work", "known"), func(context.Context) {
		knownBusyFunction(begin.Add(2 * time.Second))
	})
	pprof.StopCPUProfile()
	heap := &bytes.Buffer{}
	runtime.GC()
	check(pprof.WriteHeapProfile(heap))
	push(os.Args[1], map[string][]byte{"process_cpu": cpu.Bytes(), "memory": heap.Bytes()})
	ingest(os.Args[1], begin, cpu.Bytes())
	ingest(os.Args[1], begin, heap.Bytes())
	runtime.KeepAlive(kept)
}
