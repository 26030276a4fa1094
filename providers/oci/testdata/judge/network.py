"""Oracle's own Python SDK makes, changes and deletes a network load balancer of a simulated cloud: what it decodes is written as JSON."""

import json
import sys

import oci
from oci.network_load_balancer import models

url, compartment, subnet, instance, config = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], json.loads(sys.argv[5])
options = {"service_endpoint": url + "/20200501", "retry_strategy": oci.retry.NoneRetryStrategy()}
client = oci.network_load_balancer.NetworkLoadBalancerClient(config, **options)
both = oci.network_load_balancer.NetworkLoadBalancerClientCompositeOperations(client)
quick = {"max_interval_seconds": 1, "max_wait_seconds": 60}
missing = set()


def judge(o):
    """The fields that Oracle's description demands and that are not there, and the values that it does not know, in an object and in its parts."""
    if isinstance(o, list):
        for one in o:
            judge(one)
    elif isinstance(o, dict):
        for one in o.values():
            judge(one)
    elif hasattr(o, "attribute_map"):
        kind = type(o)
        for name in o.attribute_map:
            value = getattr(o, name)
            if isinstance(value, str) and value == "UNKNOWN_ENUM_VALUE":
                missing.add(kind.__name__ + "." + name + " is no known value")
            if value is None and "**[Required]**" in (getattr(kind, name).__doc__ or ""):
                missing.add(kind.__name__ + "." + name)
            judge(value)
    return o


def refusal(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
        return None
    except oci.exceptions.ServiceError as e:
        return [e.status, e.code]


def checker(form=models.HealthCheckerDetails):
    return form(protocol="HTTP", url_path="/healthz", port=10256, return_code=200, retries=3, timeout_in_millis=3000, interval_in_millis=10000)


def backends(*ports, form=models.BackendDetails):
    return [form(ip_address="10.0.1.1", target_id=instance, port=p, weight=1) for p in ports]


details = models.CreateNetworkLoadBalancerDetails(
    compartment_id=compartment, display_name="default/judged/uid", subnet_id=subnet, is_private=False, reserved_ips=[], network_security_group_ids=[],
    nlb_ip_version="IPV4", freeform_tags={"a": "b"},
    listeners={"TCP-80": models.ListenerDetails(name="TCP-80", default_backend_set_name="TCP-80", port=80, protocol="TCP", ip_version="IPV4")},
    backend_sets={"TCP-80": models.BackendSetDetails(policy="FIVE_TUPLE", ip_version="IPV4", is_preserve_source=False, backends=backends(30080, form=models.Backend), health_checker=checker(models.HealthChecker))},
)
made = client.create_network_load_balancer(details)
begun = judge(made.data).lifecycle_state
busy = refusal(client.update_network_load_balancer, made.data.id, models.UpdateNetworkLoadBalancerDetails(display_name="x"))
work = judge(oci.wait_until(client, client.get_work_request(made.headers["opc-work-request-id"]), "status", "SUCCEEDED", **quick).data)
lb = judge(oci.wait_until(client, client.get_network_load_balancer(made.data.id), "lifecycle_state", "ACTIVE", **quick).data)
listed = judge(oci.pagination.list_call_get_all_results(client.list_network_load_balancers, compartment, limit=2).data)
worked = judge(oci.pagination.list_call_get_all_results(client.list_work_requests, compartment).data)


def change(call, *args):
    both_states = {"wait_for_states": ["SUCCEEDED", "FAILED"], "waiter_kwargs": quick}
    done = getattr(both, call + "_and_wait_for_state")(lb.id, *args, **both_states).data
    judge(done)
    judge(oci.wait_until(client, client.get_network_load_balancer(lb.id), "lifecycle_state", "ACTIVE", **quick).data)
    return done.status


changes = [
    change("create_backend_set", models.CreateBackendSetDetails(name="UDP-53", policy="TWO_TUPLE", backends=backends(30053), health_checker=checker())),
    change("create_listener", models.CreateListenerDetails(name="UDP-53", default_backend_set_name="UDP-53", port=53, protocol="UDP")),
    change("update_backend_set", models.UpdateBackendSetDetails(policy="THREE_TUPLE"), "UDP-53"),
    change("update_listener", models.UpdateListenerDetails(is_ppv2_enabled=True), "TCP-80"),
    change("update_network_security_groups", models.UpdateNetworkSecurityGroupsDetails(network_security_group_ids=[])),
]
after = judge(client.get_network_load_balancer(lb.id)).data
wrong = [
    refusal(client.delete_backend_set, lb.id, "UDP-53"),
    refusal(client.update_network_load_balancer, lb.id, models.UpdateNetworkLoadBalancerDetails(display_name="x"), if_match="old"),
    refusal(client.get_network_load_balancer, "ocid1.networkloadbalancer.oc1.phx.none"),
]
deleted = judge(oci.wait_until(client, client.get_work_request(client.delete_network_load_balancer(lb.id).headers["opc-work-request-id"]), "status", "SUCCEEDED", **quick).data)
print(json.dumps({
    "missing": sorted(missing), "begun": begun, "busy": busy, "work": [work.operation_type, work.status, sorted(r.entity_type for r in work.resources)],
    "addresses": sorted([a.is_public, a.ip_version] for a in lb.ip_addresses), "changes": changes, "wrong": wrong, "deleted": deleted.operation_type,
    "listed": sorted(o.display_name for o in listed), "worked": len(worked) > 0,
    "listeners": {n: [l.protocol, l.port, l.is_ppv2_enabled] for n, l in after.listeners.items()},
    "policies": {n: s.policy for n, s in after.backend_sets.items()},
    "backends": sorted(b.name for b in after.backend_sets["UDP-53"].backends),
    "gone": refusal(client.update_network_load_balancer, lb.id, models.UpdateNetworkLoadBalancerDetails(display_name="x")),
}))
