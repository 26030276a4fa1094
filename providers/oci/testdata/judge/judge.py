"""Oracle's own Python SDK reads a simulated cloud: what it decodes is written as JSON."""

import json
import sys

import oci

url, compartment, subnet, config = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
options = {"service_endpoint": url + "/20160918", "retry_strategy": oci.retry.NoneRetryStrategy()}
compute = oci.core.ComputeClient(config, **options)
network = oci.core.VirtualNetworkClient(config, **options)


def everything(call, *args, **kwargs):
    return oci.pagination.list_call_get_all_results(call, *args, **kwargs).data


instances = everything(compute.list_instances, compartment, limit=2)
attachments = everything(compute.list_vnic_attachments, compartment)
cards = [network.get_vnic(a.vnic_id).data for a in attachments]
try:
    compute.get_instance("ocid1.instance.oc1.phx.none")
    refusal = None
except oci.exceptions.ServiceError as e:
    refusal = [e.status, e.code]
wrong = dict(config, fingerprint=":".join(["00"] * 16))
try:
    oci.core.ComputeClient(wrong, **options).list_instances(compartment)
    stranger = None
except oci.exceptions.ServiceError as e:
    stranger = [e.status, e.code]
public = everything(network.list_public_ips, "AVAILABILITY_DOMAIN", compartment, availability_domain=instances[0].availability_domain)


def lacking(kind, objects):
    """The fields that Oracle's description of a kind demands and that are not there, and the values that it does not know."""
    missing = set()
    for o in objects:
        for name, key in o.attribute_map.items():
            value = getattr(o, name)
            if value == "UNKNOWN_ENUM_VALUE":
                missing.add(kind + "." + key + " is no known value")
            if value is None and key in DEMANDED[kind]:
                missing.add(kind + "." + key)
    return missing


DEMANDED = {
    "instance": ["id", "compartmentId", "availabilityDomain", "lifecycleState", "region", "shape", "timeCreated"],
    "attachment": ["id", "instanceId", "compartmentId", "availabilityDomain", "lifecycleState", "timeCreated"],
    "vnic": ["id", "compartmentId", "availabilityDomain", "lifecycleState", "timeCreated"],
}
private = everything(network.list_private_ips, subnet_id=subnet)
print(json.dumps({
    "instances": sorted([i.display_name, i.lifecycle_state, i.availability_domain] for i in instances),
    "missing": sorted(lacking("instance", instances) | lacking("attachment", attachments) | lacking("vnic", cards)),
    "primary": sorted(c.private_ip for c in cards if c.is_primary),
    "private": sorted(p.ip_address for p in private),
    "public": sorted(p.ip_address for p in public),
    "refusal": refusal,
    "stranger": stranger,
}))
