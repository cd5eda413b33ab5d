package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Time after which the program gives up a request that the server does not end.
const requestTimeout = 30 * time.Second

// clientCommand is a line of the input. Keys that do not matter are empty.
type clientCommand struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Labels    string `json:"labels"`
	Fields    string `json:"fields"`
	Limit     int64  `json:"limit"`
	Continue  string `json:"continue"`
	Version   string `json:"version"`
	// Events after which the program ends a watch.
	Count int    `json:"count"`
	Token string `json:"token"`
}

// runClient runs commands with client-go: one JSON object a line on standard input, its results on standard output.
func runClient(url string) error {
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command clientCommand
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			return err
		}
		clients, err := kubernetes.NewForConfig(&rest.Config{Host: url, BearerToken: command.Token})
		if err != nil {
			return err
		}
		if err := command.run(clients, output); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (command *clientCommand) run(clients kubernetes.Interface, output *json.Encoder) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var err error
	switch command.Verb {
	case "page":
		err = command.readPage(ctx, clients, output)
	case "watch":
		err = command.watchPods(ctx, clients, output)
	default:
		return fmt.Errorf("unknown verb %q", command.Verb)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return output.Encode(map[string]any{
			"type": "FAILURE", "code": status.Status().Code, "reason": status.Status().Reason,
		})
	}
	return err
}

func (command *clientCommand) options() metav1.ListOptions {
	return metav1.ListOptions{
		LabelSelector: command.Labels, FieldSelector: command.Fields, Limit: command.Limit,
		Continue: command.Continue, ResourceVersion: command.Version,
	}
}

func (command *clientCommand) list(ctx context.Context, clients kubernetes.Interface) (runtime.Object, error) {
	options := command.options()
	switch command.Resource {
	case "pods":
		return clients.CoreV1().Pods(command.Namespace).List(ctx, options)
	case "nodes":
		return clients.CoreV1().Nodes().List(ctx, options)
	case "services":
		return clients.CoreV1().Services("").List(ctx, options)
	case "endpoints":
		return clients.CoreV1().Endpoints("").List(ctx, options)
	case "namespaces":
		return clients.CoreV1().Namespaces().List(ctx, options)
	case "endpointslices":
		return clients.DiscoveryV1().EndpointSlices("").List(ctx, options)
	default:
		return nil, fmt.Errorf("unknown resource %q", command.Resource)
	}
}

func (command *clientCommand) readPage(ctx context.Context, clients kubernetes.Interface, output *json.Encoder) error {
	list, err := command.list(ctx, clients)
	if err != nil {
		return err
	}
	metadata, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	objects := []string{}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		text, err := describeObject(item)
		objects = append(objects, text)
		return err
	})
	if err != nil {
		return err
	}
	remaining := int64(0)
	if count := metadata.GetRemainingItemCount(); count != nil {
		remaining = *count
	}
	return output.Encode(map[string]any{
		"type": "PAGE", "objects": objects, "version": metadata.GetResourceVersion(),
		"continue": metadata.GetContinue(), "remaining": remaining,
	})
}

func (command *clientCommand) watchPods(ctx context.Context, clients kubernetes.Interface, output *json.Encoder) error {
	options := command.options()
	options.AllowWatchBookmarks = true
	seconds := int64(requestTimeout / time.Second)
	options.TimeoutSeconds = &seconds
	events, err := clients.CoreV1().Pods(command.Namespace).Watch(ctx, options)
	if err != nil {
		return err
	}
	defer events.Stop()
	for range command.Count {
		event, isOpen := <-events.ResultChan()
		if !isOpen {
			break
		}
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		if err := writeEvent(event, output); err != nil {
			return err
		}
	}
	return output.Encode(map[string]any{"type": "END"})
}

func writeEvent(event watch.Event, output *json.Encoder) error {
	metadata, err := meta.Accessor(event.Object)
	if err != nil {
		return err
	}
	text := ""
	if event.Type != watch.Bookmark {
		if text, err = describeObject(event.Object); err != nil {
			return err
		}
	}
	return output.Encode(map[string]any{
		"type": event.Type, "object": text, "version": metadata.GetResourceVersion(),
	})
}

// describeObject returns the name of an object, and of a pod what the tests change.
func describeObject(object runtime.Object) (string, error) {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return metadata.GetName(), nil
	}
	port := pod.Spec.Containers[0].Ports[0].ContainerPort
	return fmt.Sprintf(
		"%s %s %s %s:%d", pod.Name, pod.Labels["revision"], pod.Spec.NodeName, pod.Status.PodIP, port,
	), nil
}
