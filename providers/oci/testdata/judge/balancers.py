"""Oracle's own Python SDK makes, reads and changes load balancers and security rules of a simulated cloud: what it decodes is written as JSON."""

import json
import sys

import oci

url, compartment, vcn, subnet, list_id, config, certificate, key = sys.argv[1:6] + [json.loads(sys.argv[6])] + sys.argv[7:9]
models = oci.load_balancer.models
retry = {"retry_strategy": oci.retry.NoneRetryStrategy()}
lb = oci.load_balancer.LoadBalancerClient(config, service_endpoint=url + "/20170115", **retry)
whole = oci.load_balancer.LoadBalancerClientCompositeOperations(lb)
network = oci.core.VirtualNetworkClient(config, service_endpoint=url + "/20160918", **retry)
wait = {"wait_for_states": ["SUCCEEDED"], "waiter_kwargs": {"max_interval_seconds": 1, "max_wait_seconds": 60}}

DEMANDED = {
    "balancer": ["id", "compartmentId", "displayName", "lifecycleState", "timeCreated", "shapeName"],
    "listener": ["name", "defaultBackendSetName", "port", "protocol"],
    "set": ["name", "policy", "backends", "healthChecker"],
    "backend": ["name", "ipAddress", "port", "weight", "drain", "backup", "offline"],
    "work": ["id", "loadBalancerId", "type", "lifecycleState", "message", "timeAccepted", "errorDetails"],
    "list": ["id", "compartmentId", "displayName", "egressSecurityRules", "ingressSecurityRules", "lifecycleState", "timeCreated", "vcnId"],
    "group": ["id", "compartmentId", "lifecycleState", "timeCreated", "vcnId"],
    "rule": ["direction", "protocol", "id", "isValid", "timeCreated"],
}
missing = set()


def judged(kind, o):
    """Notes the fields that Oracle's description of a kind demands and that are not there, and the values that it does not know."""
    for name, field in o.attribute_map.items():
        value = getattr(o, name)
        if isinstance(value, str) and value == "UNKNOWN_ENUM_VALUE" or value is None and field in DEMANDED[kind]:
            missing.add(kind + "." + field)
    return o


def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except oci.exceptions.ServiceError as e:
        return [e.status, e.code]
    return None


checker = models.HealthCheckerDetails(protocol="HTTP", url_path="/healthz", port=10256, return_code=200)
whole.create_load_balancer_and_wait_for_state(models.CreateLoadBalancerDetails(
    compartment_id=compartment, display_name="judged", shape_name="flexible", subnet_ids=[subnet],
    shape_details=models.ShapeDetails(minimum_bandwidth_in_mbps=10, maximum_bandwidth_in_mbps=10),
    backend_sets={"TCP-80": models.BackendSetDetails(policy="ROUND_ROBIN", health_checker=checker, backends=[models.BackendDetails(ip_address="10.0.0.9", port=30080)])},
    certificates={"web": models.CertificateDetails(certificate_name="web", public_certificate=certificate, private_key=key)},
    listeners={"TCP-80": models.ListenerDetails(default_backend_set_name="TCP-80", port=80, protocol="TCP",
                                                ssl_configuration=models.SSLConfigurationDetails(certificate_name="web"))}), **wait)
found = [b for b in lb.list_load_balancers(compartment).data if b.display_name == "judged"]
made = lb.get_load_balancer(found[0].id)
judged("balancer", made.data)
for listener in made.data.listeners.values():
    judged("listener", listener)
for backends in made.data.backend_sets.values():
    judged("set", backends)
    for backend in backends.backends:
        judged("backend", backend)
outdated = refused(lb.update_backend_set, models.UpdateBackendSetDetails(policy="IP_HASH", health_checker=checker, backends=[]), made.data.id, "TCP-80", if_match="x")
whole.update_backend_set_and_wait_for_state(
    models.UpdateBackendSetDetails(policy="IP_HASH", health_checker=checker, backends=[]), made.data.id, "TCP-80",
    operation_kwargs={"if_match": made.headers["etag"]}, **wait)
rules = models.CreateRuleSetDetails(name="headers", items=[models.AddHttpRequestHeaderRule(header="X-A", value="b")])
whole.create_rule_set_and_wait_for_state(made.data.id, rules, **wait)
for work in lb.list_work_requests(made.data.id).data:
    judged("work", work)
used = refused(lb.delete_certificate, made.data.id, "web")
after = lb.get_load_balancer(made.data.id).data
whole.delete_load_balancer_and_wait_for_state(made.data.id, **wait)

before = network.get_security_list(list_id)
judged("list", before.data)
rule = oci.core.models.IngressSecurityRule(protocol="6", source="192.0.2.0/24", tcp_options=oci.core.models.TcpOptions(
    destination_port_range=oci.core.models.PortRange(min=80, max=80)))
change = oci.core.models.UpdateSecurityListDetails(ingress_security_rules=before.data.ingress_security_rules + [rule])
updated = network.update_security_list(list_id, change, if_match=before.headers["etag"]).data
stale = refused(network.update_security_list, list_id, change, if_match=before.headers["etag"])

group = judged("group", network.create_network_security_group(
    oci.core.models.CreateNetworkSecurityGroupDetails(compartment_id=compartment, vcn_id=vcn, display_name="judged")).data)
added = network.add_network_security_group_security_rules(group.id, oci.core.models.AddNetworkSecurityGroupSecurityRulesDetails(security_rules=[
    oci.core.models.AddSecurityRuleDetails(direction="INGRESS", protocol="17", source="192.0.2.0/24", source_type="CIDR_BLOCK")])).data
for one in network.list_network_security_group_security_rules(group.id).data:
    judged("rule", one)
network.remove_network_security_group_security_rules(group.id, oci.core.models.RemoveNetworkSecurityGroupSecurityRulesDetails(
    security_rule_ids=[r.id for r in added.security_rules]))
left = len(network.list_network_security_group_security_rules(group.id).data)
network.delete_network_security_group(group.id)
print(json.dumps({
    "missing": sorted(missing), "state": made.data.lifecycle_state, "addresses": len(made.data.ip_addresses), "policy": after.backend_sets["TCP-80"].policy,
    "rulesets": sorted(after.rule_sets), "outdated": outdated, "used": used, "stale": stale,
    "rules": len(updated.ingress_security_rules) - len(before.data.ingress_security_rules), "added": len(added.security_rules), "left": left,
}))
