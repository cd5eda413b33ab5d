package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

// api serves the files of a case below http/ and the objects of its cluster.
type api struct {
	files   map[string]string
	objects []map[string]any
}

// Parts of a path of the Kubernetes API: version, namespace and plural of the kind.
var kubernetesPath = regexp.MustCompile(`^/(?:api|apis)/((?:[a-z.0-9]+/)?v1)(?:/namespaces/([^/]+))?/([a-z]+)$`)

// Version of Docker's API in a path.
var dockerVersion = regexp.MustCompile(`^/v1\.[0-9]+/`)

var kindsByPlural = map[string]string{
	"pods": "Pod", "nodes": "Node", "services": "Service", "endpoints": "Endpoints",
	"endpointslices": "EndpointSlice", "namespaces": "Namespace",
}

func newAPI(files map[string]string) *api {
	made := &api{files: files}
	if text, ok := files[clusterFile]; ok {
		fail(json.Unmarshal([]byte(text), &made.objects))
	}
	return made
}

func (made *api) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if parts := kubernetesPath.FindStringSubmatch(request.URL.Path); parts != nil {
		made.serveObjects(response, request, parts)
		return
	}
	path := dockerVersion.ReplaceAllString(request.URL.Path, "/")
	text, ok := made.files["http"+path]
	if !ok && path == "/_ping" {
		response.Header().Set("Api-Version", "1.44")
		ok, text = true, "OK"
	}
	if !ok {
		http.NotFound(response, request)
		return
	}
	response.Header().Set("Content-Type", "application/json")
	_, _ = response.Write([]byte(text))
}

// serveObjects answers a list with all objects of a kind and a watch with silence.
func (made *api) serveObjects(response http.ResponseWriter, request *http.Request, parts []string) {
	version, namespace, kind := parts[1], parts[2], kindsByPlural[parts[3]]
	response.Header().Set("Content-Type", "application/json")
	query := request.URL.Query()
	if query.Get("sendInitialEvents") != "" {
		response.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = response.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is not supported"}`))
		return
	}
	if query.Get("watch") != "" {
		response.WriteHeader(http.StatusOK)
		response.(http.Flusher).Flush()
		<-request.Context().Done()
		return
	}
	items := []map[string]any{}
	for _, object := range made.objects {
		metadata, _ := object["metadata"].(map[string]any)
		inNamespace := namespace == "" || metadata["namespace"] == namespace
		if object["kind"] == kind && inNamespace && matchesLabels(metadata, query.Get("labelSelector")) {
			items = append(items, object)
		}
	}
	list := map[string]any{
		"kind": kind + "List", "apiVersion": version,
		"metadata": map[string]string{"resourceVersion": "1000"}, "items": items,
	}
	fail(json.NewEncoder(response).Encode(list))
}

// matchesLabels evaluates a selector that consists of name=value terms.
func matchesLabels(metadata map[string]any, selector string) bool {
	labels, _ := metadata["labels"].(map[string]any)
	for _, term := range strings.Split(selector, ",") {
		name, value, isTerm := strings.Cut(term, "=")
		if isTerm && labels[name] != value {
			return false
		}
	}
	return true
}
