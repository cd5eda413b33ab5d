module athanor.test/relabel

go 1.24.0

require (
	github.com/prometheus/common v0.67.4
	github.com/prometheus/prometheus v0.308.0
	go.yaml.in/yaml/v2 v2.4.3
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/grafana/regexp v0.0.0-20250905093917-f7b3be9d1853 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	golang.org/x/text v0.30.0 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)
