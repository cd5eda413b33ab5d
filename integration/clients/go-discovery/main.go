// Oracle of target discovery: runs Prometheus's own packages on the cases of a folder.
//
//	discovery generate FOLDER   writes FOLDER/generated.jsonl
//	discovery expect FOLDER     reads the cases and writes FOLDER/expected.jsonl
//	discovery client URL        runs commands of the standard input with client-go
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

// testCase is a configuration with the files that it reads.
type testCase struct {
	Name string `json:"name"`
	// Files by path. The configuration is prometheus.yml. Files below http/ are served by the server of the case;
	// kubernetes.json contains objects of its cluster.
	Files map[string]string `json:"files"`
}

const (
	configFile       = "prometheus.yml"
	clusterFile      = "kubernetes.json"
	generatedFile    = "generated.jsonl"
	expectedFile     = "expected.jsonl"
	maxParallelCases = 16
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: %s generate|expect FOLDER, or client URL", os.Args[0]))
	}
	folder := os.Args[2]
	switch os.Args[1] {
	case "generate":
		fail(writeLines(filepath.Join(folder, generatedFile), generateCases()))
	case "expect":
		cases, err := readCases(folder)
		fail(err)
		fail(writeLines(filepath.Join(folder, expectedFile), expectAll(cases)))
	case "client":
		fail(runClient(os.Args[2]))
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// readCases returns the generated cases and those in folders, sorted by name.
func readCases(folder string) ([]testCase, error) {
	var cases []testCase
	generated, err := os.Open(filepath.Join(folder, generatedFile))
	if err != nil {
		return nil, err
	}
	defer generated.Close()
	lines := bufio.NewScanner(generated)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var read testCase
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			return nil, err
		}
		cases = append(cases, read)
	}
	configs, err := filepath.Glob(filepath.Join(folder, "real", "*", configFile))
	if err != nil {
		return nil, err
	}
	// All cases in folders share a cluster.
	cluster, err := os.ReadFile(filepath.Join(folder, "real", clusterFile))
	if err != nil {
		return nil, err
	}
	for _, config := range configs {
		read, err := readFolder(filepath.Dir(config))
		if err != nil {
			return nil, err
		}
		read.Files[clusterFile] = string(cluster)
		cases = append(cases, read)
	}
	sort.Slice(cases, func(a, b int) bool { return cases[a].Name < cases[b].Name })
	return cases, lines.Err()
}

func readFolder(folder string) (testCase, error) {
	read := testCase{Name: filepath.Base(folder), Files: map[string]string{}}
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		read.Files[filepath.ToSlash(name)] = string(text)
		return err
	})
	return read, err
}

func expectAll(cases []testCase) []expectation {
	expected := make([]expectation, len(cases))
	permits := make(chan struct{}, maxParallelCases)
	var running sync.WaitGroup
	for index := range cases {
		running.Add(1)
		permits <- struct{}{}
		go func() {
			defer running.Done()
			expected[index] = expect(cases[index])
			<-permits
		}()
	}
	running.Wait()
	return expected
}

func writeLines[Line any](path string, lines []Line) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
