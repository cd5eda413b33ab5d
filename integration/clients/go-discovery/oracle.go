package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/consul"
	_ "github.com/prometheus/prometheus/discovery/dns"
	_ "github.com/prometheus/prometheus/discovery/file"
	_ "github.com/prometheus/prometheus/discovery/http"
	_ "github.com/prometheus/prometheus/discovery/kubernetes"
	_ "github.com/prometheus/prometheus/discovery/moby"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
)

const (
	// Text in files of a case that stands for the address of its server.
	serverPlaceholder = "HTTP_ADDRESS"
	// Text in labels that stands for the folder of the case.
	folderPlaceholder = "FOLDER"
	// Time without updates after which discovery is complete.
	quietTime = 1500 * time.Millisecond
)

// Labels that concern samples of metrics only.
var histogramLabels = []string{
	"__convert_classic_histograms_to_nhcb__", "__always_scrape_classic_histograms__", "__scrape_native_histograms__",
}

// expectation is the verdict of Prometheus on a case.
type expectation struct {
	Name string `json:"name"`
	// Reason of a refusal.
	Refused string        `json:"refused,omitempty"`
	Jobs    []expectedJob `json:"jobs,omitempty"`
}

type expectedJob struct {
	Name     string `json:"name"`
	Interval string `json:"interval"`
	Timeout  string `json:"timeout"`
	// Mechanisms of discovery.
	Discovery []string `json:"discovery"`
	// All settings, in cases whose name begins with "defaults".
	Settings map[string]any      `json:"settings,omitempty"`
	Targets  []expectedTarget    `json:"targets"`
	Dropped  []map[string]string `json:"dropped,omitempty"`
	// Labels of targets that are invalid after relabeling, with the reason.
	Invalid []invalidTarget `json:"invalid,omitempty"`
}

type expectedTarget struct {
	Discovered map[string]string   `json:"discovered"`
	Labels     map[string]string   `json:"labels"`
	Scheme     string              `json:"scheme"`
	Address    string              `json:"address"`
	Params     map[string][]string `json:"params,omitempty"`
	Interval   string              `json:"interval"`
	Timeout    string              `json:"timeout"`
}

type invalidTarget struct {
	Discovered map[string]string `json:"discovered"`
	Reason     string            `json:"reason"`
}

func expect(of testCase) expectation {
	folder, err := os.MkdirTemp("", "discovery-oracle")
	fail(err)
	defer os.RemoveAll(folder)
	folder, err = filepath.EvalSymlinks(folder)
	fail(err)
	server := httptest.NewServer(newAPI(of.Files))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for name, text := range of.Files {
		path := filepath.Join(folder, name)
		fail(os.MkdirAll(filepath.Dir(path), 0o755))
		fail(os.WriteFile(path, []byte(strings.ReplaceAll(text, serverPlaceholder, address)), 0o644))
	}
	result := expectation{Name: of.Name}
	loaded, err := config.LoadFile(filepath.Join(folder, configFile), false, promslog.NewNopLogger())
	var jobs []*config.ScrapeConfig
	if err == nil {
		jobs, err = loaded.GetScrapeConfigs()
	}
	if err != nil {
		result.Refused = strings.ReplaceAll(strings.ReplaceAll(err.Error(), folder, folderPlaceholder), address, serverPlaceholder)
		return result
	}
	placeholders := strings.NewReplacer(folder, folderPlaceholder, address, serverPlaceholder)
	for _, job := range jobs {
		result.Jobs = append(result.Jobs, expectJob(of.Name, job, placeholders))
	}
	sort.Slice(result.Jobs, func(a, b int) bool { return result.Jobs[a].Name < result.Jobs[b].Name })
	return result
}

func expectJob(caseName string, job *config.ScrapeConfig, placeholders *strings.Replacer) expectedJob {
	expected := expectedJob{
		Name: job.JobName, Interval: job.ScrapeInterval.String(), Timeout: job.ScrapeTimeout.String(),
		Discovery: []string{}, Targets: []expectedTarget{},
	}
	if strings.HasPrefix(caseName, "defaults") {
		expected.Settings = settingsOf(job, placeholders)
	}
	runs := true
	for _, mechanism := range job.ServiceDiscoveryConfigs {
		expected.Discovery = append(expected.Discovery, mechanism.Name())
		if mechanism.Name() == "dns" || mechanism.Name() == "consul" {
			runs = false
		}
	}
	sort.Strings(expected.Discovery)
	if !runs || expected.Settings != nil {
		return expected
	}
	seen := map[string]bool{}
	builder := labels.NewBuilder(labels.EmptyLabels())
	for _, group := range discoverAll(job.ServiceDiscoveryConfigs) {
		for _, target := range group.Targets {
			single := &targetgroup.Group{Targets: append(group.Targets[:0:0], target), Labels: group.Labels, Source: group.Source}
			scrape.PopulateDiscoveredLabels(builder, job, target, group.Labels)
			discovered := labelsOf(builder.Labels(), placeholders)
			made, failures := scrape.TargetsFromGroup(single, job, nil, builder)
			switch {
			case len(failures) > 0:
				reason := failures[0].Error()
				reason = placeholders.Replace(reason[strings.Index(reason, ": ")+2:])
				expected.Invalid = append(expected.Invalid, invalidTarget{Discovered: discovered, Reason: reason})
			case made[0].Labels(builder).IsEmpty():
				expected.Dropped = append(expected.Dropped, discovered)
			default:
				all, err := scrape.PopulateLabels(builder, job, target, group.Labels)
				fail(err)
				// Targets with equal labels and URLs are one.
				if key := all.String() + made[0].URL().String(); !seen[key] {
					seen[key] = true
					expected.Targets = append(expected.Targets, expectedTargetOf(made[0], discovered, placeholders))
				}
			}
		}
	}
	sortByJSON(expected.Targets)
	sortByJSON(expected.Dropped)
	sortByJSON(expected.Invalid)
	return expected
}

func expectedTargetOf(target *scrape.Target, discovered map[string]string, placeholders *strings.Replacer) expectedTarget {
	builder := labels.NewBuilder(labels.EmptyLabels())
	url := target.URL()
	params := map[string][]string{}
	for name, values := range url.Query() {
		params[name] = values
	}
	return expectedTarget{
		Discovered: discovered,
		Labels:     labelsOf(target.Labels(builder), placeholders),
		Scheme:     url.Scheme,
		Address:    placeholders.Replace(url.Host),
		Params:     params,
		Interval:   target.GetValue("__scrape_interval__"),
		Timeout:    target.GetValue("__scrape_timeout__"),
	}
}

// labelsOf returns labels without those of histograms, with placeholders.
func labelsOf(from labels.Labels, placeholders *strings.Replacer) map[string]string {
	copied := map[string]string{}
	from.Range(func(label labels.Label) { copied[label.Name] = placeholders.Replace(label.Value) })
	for _, name := range histogramLabels {
		delete(copied, name)
	}
	return copied
}

// discoverAll runs discovery until no update comes any more.
func discoverAll(mechanisms discovery.Configs) []*targetgroup.Group {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	registry := prometheus.NewRegistry()
	refreshMetrics := discovery.NewRefreshMetrics(registry)
	var all []*targetgroup.Group
	for _, mechanism := range mechanisms {
		metrics := mechanism.NewDiscovererMetrics(registry, refreshMetrics)
		fail(metrics.Register())
		discoverer, err := mechanism.NewDiscoverer(discovery.DiscovererOptions{
			Logger: slog.New(slog.DiscardHandler), Metrics: metrics, SetName: "oracle",
		})
		fail(err)
		updates := make(chan []*targetgroup.Group)
		go discoverer.Run(ctx, updates)
		groups := latestGroups(updates)
		metrics.Unregister()
		sources := make([]string, 0, len(groups))
		for source := range groups {
			sources = append(sources, source)
		}
		sort.Strings(sources)
		for _, source := range sources {
			all = append(all, groups[source])
		}
	}
	return all
}

func latestGroups(updates <-chan []*targetgroup.Group) map[string]*targetgroup.Group {
	groups := map[string]*targetgroup.Group{}
	for {
		select {
		case update, open := <-updates:
			if !open {
				return groups
			}
			for _, group := range update {
				if group != nil {
					groups[group.Source] = group
				}
			}
		case <-time.After(quietTime):
			return groups
		}
	}
}

func sortByJSON[Item any](items []Item) {
	sort.SliceStable(items, func(a, b int) bool {
		first, err := json.Marshal(items[a])
		fail(err)
		second, err := json.Marshal(items[b])
		fail(err)
		return string(first) < string(second)
	})
}
