"""Runs commands with the official client of Kubernetes: one JSON object a line on stdin, its results on stdout."""
import json
import sys

import urllib3
from kubernetes import client, watch

# A server that sends nothing must not keep the program forever.
REQUEST_TIMEOUT = 30
WATCH_SECONDS = 30


def main(url):
    configuration = client.Configuration()
    configuration.host = url
    for line in sys.stdin:
        command = json.loads(line)
        if command["token"]:
            configuration.api_key = {"authorization": "Bearer " + command["token"]}
        with client.ApiClient(configuration) as api:
            run = {"page": read_page, "watch": watch_events}[command["verb"]]
            try:
                run(api, command)
            except client.ApiException as error:
                write({"type": "FAILURE", "code": error.status, "reason": reason_of(error)})
            except urllib3.exceptions.HTTPError:
                write({"type": "BROKEN"})


def list_function(api, command):
    core = client.CoreV1Api(api)
    discovery = client.DiscoveryV1Api(api)
    if command["namespace"]:
        return lambda **options: core.list_namespaced_pod(command["namespace"], **options)
    return {
        "pods": core.list_pod_for_all_namespaces,
        "nodes": core.list_node,
        "services": core.list_service_for_all_namespaces,
        "endpoints": core.list_endpoints_for_all_namespaces,
        "namespaces": core.list_namespace,
        "endpointslices": discovery.list_endpoint_slice_for_all_namespaces,
    }[command["resource"]]


def selectors(command):
    return {"label_selector": command["labels"], "field_selector": command["fields"]}


def read_page(api, command):
    page = list_function(api, command)(
        limit=command["limit"],
        _continue=command["continue"],
        _request_timeout=REQUEST_TIMEOUT,
        **selectors(command),
    )
    write({
        "type": "PAGE",
        "objects": [describe(item) for item in page.items],
        "version": page.metadata.resource_version,
        "continue": page.metadata._continue or "",
        "remaining": page.metadata.remaining_item_count or 0,
    })


def watch_events(api, command):
    stream = watch.Watch(return_type="V1Pod").stream(
        list_function(api, command),
        resource_version=command["version"],
        allow_watch_bookmarks=True,
        timeout_seconds=WATCH_SECONDS,
        **selectors(command),
    )
    count = command["count"]
    while count > 0:
        event = next(stream, None)
        if event is None:
            break
        raw = event["raw_object"]
        is_bookmark = event["type"] == "BOOKMARK"
        text = "" if is_bookmark else describe(event["object"])
        write({"type": event["type"], "object": text, "version": raw["metadata"]["resourceVersion"]})
        count -= 1
    stream.close()
    write({"type": "END"})


def describe(item):
    text = item.metadata.name
    if isinstance(item, client.V1Pod):
        port = item.spec.containers[0].ports[0].container_port
        text += f" {item.metadata.labels['revision']} {item.spec.node_name} {item.status.pod_ip}:{port}"
    return text


def reason_of(error):
    if error.body:
        return json.loads(error.body)["reason"]
    return error.reason.split(":")[0]


def write(result):
    print(json.dumps(result), flush=True)


main(sys.argv[1])
