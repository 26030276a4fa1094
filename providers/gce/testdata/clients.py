"""Drives a simulated Compute Engine with two clients that nobody here wrote. Arguments: the URL of the simulator."""

import sys
import urllib.parse

URL = sys.argv[1]
PROJECT, REGION, ZONE = "my-project", "us-central1", "us-central1-a"


def check(what, want, have):
    if want != have:
        sys.exit(f"{what}: want {want!r}, have {have!r}")


def google_client():
    """Google's own client, which checks parameters, patterns and values against the description of the API."""
    import httplib2
    from googleapiclient.discovery import build
    from googleapiclient.errors import HttpError

    class Http(httplib2.Http):
        def request(self, uri, method="GET", body=None, headers=None, **more):
            return super().request(uri, method, body, dict(headers or {}, authorization="Bearer any"), **more)

    compute = build("compute", "v1", http=Http(), static_discovery=True, client_options={"api_endpoint": URL + "/compute/v1/"})
    base = f"projects/{PROJECT}/"

    def done(operation):
        name = operation["name"]
        where = {"project": PROJECT, "operation": name}
        while operation["status"] != "DONE":
            if "zone" in operation:
                call = compute.zoneOperations().wait(zone=ZONE, **where)
            elif "region" in operation:
                call = compute.regionOperations().wait(region=REGION, **where)
            else:
                call = compute.globalOperations().wait(**where)
            operation = call.execute()
        return operation

    def made(operation):
        check("errors of " + operation["targetLink"], None, done(operation).get("error"))

    check_of = {"name": "hc", "type": "HTTP", "httpHealthCheck": {"port": 10256, "requestPath": "/healthz"}, "checkIntervalSec": 8, "timeoutSec": 1}
    made(compute.healthChecks().insert(project=PROJECT, body=check_of).execute())
    made(compute.instanceGroups().insert(project=PROJECT, zone=ZONE, body={"name": "group"}).execute())
    member = {"instances": [{"instance": f"{base}zones/{ZONE}/instances/one"}]}
    made(compute.instanceGroups().addInstances(project=PROJECT, zone=ZONE, instanceGroup="group", body=member).execute())
    group = compute.instanceGroups().get(project=PROJECT, zone=ZONE, instanceGroup="group").execute()
    check("members", 1, group["size"])
    found = compute.instanceGroups().listInstances(project=PROJECT, zone=ZONE, instanceGroup="group", body={}).execute()
    check("members", ["one"], [m["instance"].split("/")[-1] for m in found["items"]])
    backend = {
        "name": "back", "protocol": "TCP", "loadBalancingScheme": "INTERNAL",
        "healthChecks": [f"{base}global/healthChecks/hc"], "backends": [{"group": group["selfLink"]}],
    }
    made(compute.regionBackendServices().insert(project=PROJECT, region=REGION, body=backend).execute())
    backend = compute.regionBackendServices().get(project=PROJECT, region=REGION, backendService="back").execute()
    check("balancing mode", "CONNECTION", backend["backends"][0]["balancingMode"])
    try:
        done(compute.regionBackendServices().update(project=PROJECT, region=REGION, backendService="back", body=dict(backend, fingerprint="stale")).execute())
        sys.exit("a stale fingerprint is taken")
    except HttpError as e:
        check("stale fingerprint", (412, "conditionNotMet"), (e.status_code, e.error_details[0]["reason"]))
    rule = {
        "name": "rule", "loadBalancingScheme": "INTERNAL", "IPProtocol": "TCP", "ports": ["80"], "backendService": backend["selfLink"],
        "network": f"{base}global/networks/cluster", "subnetwork": f"{base}regions/{REGION}/subnetworks/nodes",
    }
    made(compute.forwardingRules().insert(project=PROJECT, region=REGION, body=rule, requestId="9c1f2e34-0000-4000-8000-000000000001").execute())
    wall = {
        "name": "wall", "network": f"{base}global/networks/cluster", "sourceRanges": ["0.0.0.0/0"], "allowed": [{"IPProtocol": "tcp", "ports": ["80"]}],
    }
    made(compute.firewalls().insert(project=PROJECT, body=wall).execute())
    made(compute.firewalls().patch(project=PROJECT, firewall="wall", body={"name": "wall", "sourceRanges": ["192.0.2.0/24"]}).execute())
    check("sources", ["192.0.2.0/24"], compute.firewalls().get(project=PROJECT, firewall="wall").execute()["sourceRanges"])
    route = {
        "name": "way", "network": f"{base}global/networks/cluster", "destRange": "10.244.0.0/24", "priority": 1000,
        "nextHopInstance": f"{base}zones/{ZONE}/instances/one",
    }
    made(compute.routes().insert(project=PROJECT, body=route).execute())

    # In pages of one, and no more than there are.
    names, call = [], compute.instances().aggregatedList(project=PROJECT, maxResults=1)
    while call is not None:
        page = call.execute()
        names += [i["name"] for z in page["items"].values() for i in z.get("instances", [])]
        call = compute.instances().aggregatedList_next(call, page)
    check("instances", ["one", "two"], sorted(names))

    # What is in use stays, whether that shows at once or in the operation.
    try:
        error = done(compute.healthChecks().delete(project=PROJECT, healthCheck="hc").execute()).get("error")
        check("in use", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", error["errors"][0]["code"])
    except HttpError as e:
        check("in use", (400, "resourceInUseByAnotherResource"), (e.status_code, e.error_details[0]["reason"]))
    for operation in (
        lambda: compute.forwardingRules().delete(project=PROJECT, region=REGION, forwardingRule="rule"),
        lambda: compute.regionBackendServices().delete(project=PROJECT, region=REGION, backendService="back"),
        lambda: compute.healthChecks().delete(project=PROJECT, healthCheck="hc"),
        lambda: compute.instanceGroups().delete(project=PROJECT, zone=ZONE, instanceGroup="group"),
        lambda: compute.firewalls().delete(project=PROJECT, firewall="wall"),
        lambda: compute.routes().delete(project=PROJECT, route="way"),
    ):
        made(operation().execute())
    try:
        compute.forwardingRules().get(project=PROJECT, region=REGION, forwardingRule="rule").execute()
        sys.exit("a rule that was deleted is there")
    except HttpError as e:
        check("missing", (404, "notFound"), (e.status_code, e.error_details[0]["reason"]))


def libcloud_client():
    """Apache Libcloud, which knows target pools and their health checks."""
    import libcloud.common.base as base
    import libcloud.common.google as google

    server = urllib.parse.urlsplit(URL)

    class Credential:
        default_credential_file = "none"
        token = {"access_token": "any"}
        access_token = oauth2_token = "any"

        def __init__(self, *_, **__):
            pass

    google.GoogleOAuth2Credential = Credential
    create = base.Connection.__init__

    def plain(self, *args, **kwargs):
        kwargs.update(secure=False, host=server.hostname, port=server.port)
        create(self, *args, **kwargs)

    base.Connection.__init__ = plain
    from libcloud.compute.drivers.gce import GCENodeDriver

    driver = GCENodeDriver("ccm@example.com", "key", project=PROJECT, datacenter=ZONE)
    health = driver.ex_create_healthcheck("legacy", path="/healthz", port=10256, interval=8, timeout=1, unhealthy_threshold=3, healthy_threshold=1)
    check("path", ("/healthz", 10256, 8), (health.path, health.port, health.interval))
    pool = driver.ex_create_targetpool("pool", region=REGION, healthchecks=["legacy"], session_affinity="CLIENT_IP")
    check("affinity", "CLIENT_IP", pool.extra["sessionAffinity"])
    link = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances/one"
    check("add", True, driver.ex_targetpool_add_node(pool, link))
    members = driver.connection.request(f"/regions/{REGION}/targetPools/pool").object["instances"]
    check("members", [link], members)
    address = driver.ex_create_address("static", region=REGION)
    rule = driver.ex_create_forwarding_rule("front", targetpool=pool, region=REGION, protocol="tcp", port_range="80-443", address=address)
    check("rule", ("TCP", address.address, "80-443"), (rule.protocol, rule.address, rule.extra["portRange"]))
    check("destroyed", True, driver.ex_destroy_forwarding_rule(rule))
    check("removed", True, driver.ex_targetpool_remove_healthcheck(pool, health))
    check("destroyed", True, driver.ex_destroy_targetpool(pool))
    check("destroyed", True, driver.ex_destroy_healthcheck(health))
    check("destroyed", True, driver.ex_destroy_address(address))


google_client()
libcloud_client()
print("both clients are content")
