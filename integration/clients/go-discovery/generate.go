package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Seed of the generated cases. The committed cases are those of this seed.
const seed = 25

type object = map[string]any

// generator makes cases that depend on its seed only.
type generator struct {
	random *rand.Rand
	cases  []testCase
}

func generateCases() []testCase {
	made := &generator{random: rand.New(rand.NewPCG(seed, seed))}
	made.relabelCases(90)
	made.sharingCases(10)
	made.addressCases(30)
	made.scheduleCases(20)
	made.fileCases(35)
	made.httpCases(15)
	made.mixedCases(10)
	made.fixedCases()
	return made.cases
}

func (made *generator) add(kind string, files map[string]string) {
	name := fmt.Sprintf("%s-%03d", kind, len(made.cases))
	made.cases = append(made.cases, testCase{Name: name, Files: files})
}

// addJobs adds a case whose configuration has these jobs.
func (made *generator) addJobs(kind string, jobs ...object) {
	made.add(kind, map[string]string{configFile: asJSON(object{"scrape_configs": jobs})})
}

func asJSON(value any) string {
	text, err := json.Marshal(value)
	fail(err)
	return string(text)
}

func (made *generator) isOneIn(count int) bool { return made.random.IntN(count) == 0 }

func pick[Item any](made *generator, items []Item) Item { return items[made.random.IntN(len(items))] }

var (
	addresses = []string{
		"10.0.0.1:6060", "10.0.0.2:6060", "db-1.example.com:9100", "db-1.example.com", "localhost:80", "web:443",
		"[::1]:9090", "[2001:db8::1]", "192.0.2.7:65535", "a.b.c:1", "node-17:9100", "node-18:9100",
	}
	oddAddresses = []string{
		"", "http://host:1", "host/path", "host:port", "host:0", "host:65536", ":9090", "host:", "ünïcode:80", "a b:1",
		"[::1", "host:80:90", "user@host:80",
	}
	labelNames = []string{
		"env", "team", "zone", "role", "__meta_role", "__meta_zone", "__tmp", "__param_debug", "version", "app_name",
		"job", "instance",
	}
	labelValues = []string{
		"", "prod", "staging", "eu-west-1", "eu-west-2", "a;b", "ABC def", "über", "1.2.3", "x_y", "canary", "10", "$1",
		"line\nbreak", "  spaced ", "true", "null",
	}
	sources = []string{
		"__address__", "__scheme__", "job", "instance", "env", "team", "zone", "role", "__meta_role", "__meta_zone",
		"__tmp", "__param_debug", "absent", "version", "__scrape_interval__", "__metrics_path__",
	}
	regexes = []string{
		"(.*)", ".+", "", "prod|staging", "(prod|staging)", "eu-(west)-([0-9]+)", "(?i)abc.*", "(?P<zone>eu)-.*", "^prod$",
		"[^;]+;.*", "a;b", `(.+?)(?::(\d+))?`, `([^:]+):\d+`, `\d+`, "(.*)(.*)", `[[:alpha:]]+.*`, "p(?:ro)d", `\pL+`, "(?s).*",
		".*", "env|team", "__meta_(.+)", "(role|zone)", "x{1,3}_y", `.*\.example\.com.*`, "true", "(?m)^line$", "()",
	}
	replacements = []string{
		"$1", "${1}", "$2-$1", "$0", "fixed", "", "${1}:6060", "$1_x", "${1}_x", "$$", "$", "$name", "${zone}", "$10", "${10}",
		"a$1b", "http", "https", "$1:$2", "über-$1", "${1", "$ 1",
	}
	targets = []string{
		"env", "team", "__address__", "instance", "job", "__tmp", "__param_debug", "__scheme__", "copied", "zone", "$1",
		"${1}_copy", "a-b", "übung", "__meta_new", "0start", "with space",
	}
	actions = []string{
		"replace", "replace", "replace", "", "keep", "drop", "keepequal", "dropequal", "hashmod", "labelmap", "labeldrop",
		"labelkeep", "lowercase", "uppercase",
	}
)

// labels returns up to count labels with random values.
func (made *generator) labels(count int) object {
	labels := object{}
	for range made.random.IntN(count + 1) {
		labels[pick(made, labelNames)] = pick(made, labelValues)
	}
	return labels
}

func (made *generator) group(maxTargets int) object {
	group := object{"targets": made.addresses(made.random.IntN(maxTargets + 1))}
	if labels := made.labels(5); len(labels) > 0 || made.isOneIn(2) {
		group["labels"] = labels
	}
	return group
}

func (made *generator) addresses(count int) []string {
	chosen := []string{}
	for range count {
		chosen = append(chosen, pick(made, addresses))
	}
	return chosen
}

func (made *generator) groups(maxGroups, maxTargets int) []object {
	groups := []object{}
	for range 1 + made.random.IntN(maxGroups) {
		groups = append(groups, made.group(maxTargets))
	}
	return groups
}

func (made *generator) sourceLabels(min int) []string {
	labels := []string{}
	for range min + made.random.IntN(3) {
		labels = append(labels, pick(made, sources))
	}
	return labels
}

// rule returns a rule that is valid in most cases.
func (made *generator) rule() object {
	action := pick(made, actions)
	rule := object{}
	if action != "" {
		rule["action"] = action
		if made.isOneIn(12) {
			rule["action"] = strings.ToUpper(action)
		}
	}
	switch action {
	case "labelmap":
		rule["regex"] = pick(made, []string{"__meta_(.+)", "(env|team)", "__meta_(role)", "(.+)_name"})
		if made.isOneIn(2) {
			rule["replacement"] = pick(made, []string{"$1", "${1}_mapped", "mapped_$1", "x"})
		}
	case "labeldrop", "labelkeep":
		rule["regex"] = pick(made, []string{"env", "env|team", "__meta_.*", "__.*|env|job", "(__address__|__scheme__|__scrape.*|job|zone)", ".*name"})
	case "hashmod":
		rule["source_labels"] = made.sourceLabels(1)
		rule["modulus"] = 1 + made.random.IntN(16)
		rule["target_label"] = pick(made, []string{"__tmp", "shard", "__hash"})
	case "keepequal", "dropequal":
		rule["source_labels"] = made.sourceLabels(1)
		rule["target_label"] = pick(made, labelNames)
	case "lowercase", "uppercase":
		rule["source_labels"] = made.sourceLabels(1)
		rule["target_label"] = pick(made, labelNames)
	default:
		rule["source_labels"] = made.sourceLabels(0)
		if !made.isOneIn(6) {
			rule["regex"] = pick(made, regexes)
		}
		if action == "replace" || action == "" {
			rule["target_label"] = pick(made, targets)
			if !made.isOneIn(3) {
				rule["replacement"] = pick(made, replacements)
			}
		}
	}
	if made.isOneIn(6) && action != "labeldrop" && action != "labelkeep" && action != "keepequal" && action != "dropequal" {
		rule["separator"] = pick(made, []string{"", ",", "::", ";", "/"})
	}
	return rule
}

func (made *generator) rules(most int) []object {
	rules := []object{}
	for range 1 + made.random.IntN(most) {
		rules = append(rules, made.rule())
	}
	return rules
}

func (made *generator) relabelCases(count int) {
	for range count {
		made.addJobs("relabel", object{
			"job_name": pick(made, []string{"app", "node exporter", "über/job", "a"}), "static_configs": made.groups(3, 3),
			"relabel_configs": made.rules(5),
		})
	}
}

// sharingCases let several agents share targets by the hash of an address.
func (made *generator) sharingCases(count int) {
	for index := range count {
		modulus := 2 + index%4
		targets := []string{}
		for host := range 12 {
			targets = append(targets, fmt.Sprintf("host-%d-%d:6060", index, host))
		}
		made.addJobs("sharing", object{
			"job_name": "shared", "static_configs": []object{{"targets": targets}},
			"relabel_configs": []object{
				{"source_labels": []string{"__address__"}, "modulus": modulus, "target_label": "__tmp_hash", "action": "hashmod"},
				{"source_labels": []string{"__tmp_hash"}, "regex": fmt.Sprint(made.random.IntN(modulus)), "action": "keep"},
			},
		})
	}
}

// addressCases use odd addresses, schemes and parameters, some of them after relabeling only.
func (made *generator) addressCases(count int) {
	for index := range count {
		job := object{"job_name": "addresses"}
		group := object{"targets": made.addresses(1 + made.random.IntN(3))}
		switch index % 3 {
		case 0:
			group["labels"] = object{"__scheme__": pick(made, []string{"http", "https", "ftp", "", "HTTP"}), "__param_a": pick(made, labelValues)}
		case 1:
			group["targets"] = append(made.addresses(1), pick(made, oddAddresses), pick(made, oddAddresses))
			if made.isOneIn(2) {
				job["relabel_configs"] = []object{{"target_label": "zone", "replacement": "fixed"}}
			}
		default:
			job["relabel_configs"] = []object{
				{"source_labels": []string{"__address__"}, "regex": "([^:]+):.*", "target_label": "host"},
				{"source_labels": []string{"env"}, "target_label": "__address__", "replacement": pick(made, oddAddresses), "regex": "prod"},
				{"target_label": pick(made, []string{"__scheme__", "__param_a", "__param_new", "instance"}), "replacement": pick(made, replacements)},
			}
			group["labels"] = object{"env": pick(made, []string{"prod", "staging"})}
		}
		if made.isOneIn(2) {
			job["params"] = object{"a": []string{"1", "2"}, "debug": made.addresses(made.random.IntN(3)), "über": []string{"x y&z"}}
		}
		if made.isOneIn(3) {
			job["scheme"] = pick(made, []string{"https", "http"})
		}
		job["static_configs"] = []object{group}
		made.addJobs("address", job)
	}
}

var durations = []string{"1s", "15s", "1m", "90s", "1m30s", "2h", "500ms", "1d", "30s", "10s", "5m", "1h30m", "0s", "15"}

// scheduleCases set intervals and timeouts globally, per job and by relabeling.
func (made *generator) scheduleCases(count int) {
	for range count {
		global := object{}
		for _, key := range []string{"scrape_interval", "scrape_timeout"} {
			if made.isOneIn(2) {
				global[key] = pick(made, durations[:12])
			}
		}
		job := object{"job_name": "schedule", "static_configs": made.groups(2, 2)}
		if made.isOneIn(2) {
			job["scrape_interval"] = pick(made, durations)
		}
		if made.isOneIn(3) {
			job["scrape_timeout"] = pick(made, durations)
		}
		if made.isOneIn(2) {
			job["relabel_configs"] = []object{
				{"target_label": "__scrape_interval__", "replacement": pick(made, durations)},
				{"target_label": "__scrape_timeout__", "replacement": pick(made, append(durations, "", "bad", "-1s"))},
			}
		}
		other := object{"job_name": "other", "static_configs": made.groups(1, 2)}
		made.add("schedule", map[string]string{
			configFile: asJSON(object{"global": global, "scrape_configs": []object{job, other}}),
		})
	}
}

// oddFiles are contents that a file of targets should not have, or rarely has.
var oddFiles = []string{
	"", "[]", "null", "{}", "not yaml: [", `[{"targets": null}]`, `[{"labels": {"a": "b"}}]`, "[null]", `[{"targets": ["a:1"], "label": {}}]`,
	`[{"targets": "a:1"}]`, `[{"targets": [1, 2.5, true]}]`, `[{"targets": ["a:1"], "labels": {"n": 1}}]`, `[{"targets": ["a:1"], "labels": {"bad-name": "x"}}]`,
	`[{"targets": ["a:1"], "labels": {"": "x"}}]`, `[{"targets": ["a:1", "a:1"]}]`, `[{"targets": ["a/b:1"]}]`, `[{"targets": [""]}]`,
	`[{"targets": ["a:1"], "labels": {"__address__": "b:2"}}]`, `[{"targets": ["a:1"], "labels": {"job": "", "instance": "i"}}]`,
	`[{"targets": ["a:1"]}] trailing`, `[{"targets": ["a:1"], "targets": ["b:2"]}]`,
}

func (made *generator) fileCases(count int) {
	for index := range count {
		files := map[string]string{}
		for number := range 1 + made.random.IntN(3) {
			groups := made.groups(3, 2)
			if made.isOneIn(2) {
				files[fmt.Sprintf("sd/targets-%d.json", number)] = asJSON(groups)
			} else {
				files[fmt.Sprintf("sd/targets-%d.yml", number)] = asYAML(groups)
			}
		}
		if index < len(oddFiles) {
			files[pick(made, []string{"sd/odd.json", "sd/odd.yml", "sd/odd.yaml"})] = oddFiles[index]
		}
		files["sd/ignored.txt"] = "[]"
		patterns := pick(made, [][]string{
			{"sd/*.json", "sd/*.yml", "sd/*.yaml"}, {"sd/t*.json", "sd/o*.yml", "sd/*.yaml"},
			{"sd/targets-0.json", "sd/targets-0.yml", "sd/odd.json"}, {"sd/absent.json", "sd/*.yml", "sd/od*.json"},
		})
		job := object{"job_name": "files", "file_sd_configs": []object{{"files": patterns}}}
		if made.isOneIn(3) {
			job["relabel_configs"] = append(made.rules(2), object{
				"source_labels": []string{"__meta_filepath"}, "regex": ".*/(.+)[.].*", "target_label": "file",
			})
		}
		files[configFile] = asJSON(object{"scrape_configs": []object{job}})
		made.add("file", files)
	}
}

// asYAML writes groups as people write them.
func asYAML(groups []object) string {
	var text strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&text, "- targets:\n")
		for _, target := range group["targets"].([]string) {
			fmt.Fprintf(&text, "    - %s\n", asJSON(target))
		}
		if labels, ok := group["labels"].(object); ok && len(labels) > 0 {
			fmt.Fprintf(&text, "  labels:\n")
			for _, name := range labelNames {
				if value, ok := labels[name]; ok {
					fmt.Fprintf(&text, "    %s: %s\n", name, asJSON(value))
				}
			}
		}
	}
	return text.String()
}

func (made *generator) httpCases(count int) {
	for index := range count {
		body := asJSON(made.groups(4, 3))
		if index%3 == 2 {
			body = pick(made, oddFiles)
		}
		job := object{"job_name": "list", "http_sd_configs": []object{{"url": "http://" + serverPlaceholder + "/targets"}}}
		if made.isOneIn(3) {
			job["relabel_configs"] = made.rules(2)
		}
		made.add("http", map[string]string{
			configFile: asJSON(object{"scrape_configs": []object{job}}), "http/targets": body,
		})
	}
}

// mixedCases have several jobs with several mechanisms of discovery each.
func (made *generator) mixedCases(count int) {
	for range count {
		jobs := []object{}
		for number := range 2 + made.random.IntN(2) {
			job := object{"job_name": fmt.Sprintf("job-%d", number), "static_configs": made.groups(2, 2)}
			job["file_sd_configs"] = []object{{"files": []string{"a.json"}}, {"files": []string{"b*.yml"}, "refresh_interval": "10s"}}
			job["http_sd_configs"] = []object{{"url": "http://" + serverPlaceholder + "/list"}}
			if made.isOneIn(2) {
				job["relabel_configs"] = made.rules(3)
			}
			jobs = append(jobs, job)
		}
		made.add("mixed", map[string]string{
			configFile: asJSON(object{"scrape_configs": jobs}), "a.json": asJSON(made.groups(2, 2)),
			"b1.yml": asYAML(made.groups(2, 2)), "b2.yml": asYAML(made.groups(1, 1)), "http/list": asJSON(made.groups(2, 2)),
		})
	}
}
