// Reads rules and labels as JSON, a line each, and prints what Prometheus makes of them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"
)

type task struct {
	Rules  []json.RawMessage
	Labels map[string]string
}

func read(rules []json.RawMessage) ([]*relabel.Config, error) {
	var read []*relabel.Config
	for _, rule := range rules {
		var fields struct{ Regex string }
		if err := json.Unmarshal(rule, &fields); err != nil {
			return nil, err
		}
		// What is no expression by itself is none within others either.
		if _, err := regexp.Compile(fields.Regex); err != nil {
			return nil, err
		}
		config := &relabel.Config{}
		if err := yaml.UnmarshalStrict(rule, config); err != nil {
			return nil, err
		}
		if err := config.Validate(model.UTF8Validation); err != nil {
			return nil, err
		}
		read = append(read, config)
	}
	return read, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var of task
		if err := json.Unmarshal(lines.Bytes(), &of); err != nil {
			panic(err)
		}
		rules, err := read(of.Rules)
		if err != nil {
			fmt.Fprintln(out, `"refused"`)
			continue
		}
		made, kept := relabel.Process(labels.FromMap(of.Labels), rules...)
		if !kept {
			fmt.Fprintln(out, `"dropped"`)
			continue
		}
		told, err := json.Marshal(made.Map())
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(out, string(told))
	}
}
