"""Drives a simulated region with IBM's own client for Python, which refuses documents that lack a field. Arguments: URL, API key."""

import sys

from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import IAMAuthenticator
from ibm_vpc import VpcV1, vpc_v1

URL, KEY = sys.argv[1:3]


def check(what, want, have):
    if want != have:
        sys.exit(f"{what}: want {want!r}, have {have!r}")


def refused(what, code, call):
    try:
        call()
    except ApiException as e:
        check(what, code, e.http_response.json()["errors"][0]["code"])
        return
    sys.exit(f"{what}: it is not refused")


def legal(what, enum, value):
    known = [v.value for v in enum]
    if value not in known:
        sys.exit(f"{what}: {value!r} is none of {known}")


def client(key):
    c = VpcV1(authenticator=IAMAuthenticator(key, url=URL))
    c.set_service_url(URL + "/v1")
    return c


try:
    client("wrong").list_subnets()
    sys.exit("a wrong key is not refused")
except ApiException as e:
    check("a wrong key", 400, e.status_code)

vpc = client(KEY)
subnets = vpc_v1.SubnetCollection.from_dict(vpc.list_subnets(limit=100, **{}).get_result())
instances = vpc_v1.InstanceCollection.from_dict(vpc.list_instances(vpc_name="ocp4-vpc").get_result())
check("instances", ["one", "two"], sorted(i.name for i in instances.instances))
for i in instances.instances:
    legal("status", vpc_v1.Instance.StatusEnum, i.status)
    check("one instance", i.id, vpc_v1.Instance.from_dict(vpc.get_instance(i.id).get_result()).id)
refused("no instance", "not_found", lambda: vpc.get_instance("0717_00000000-0000-0000-0000-000000000000"))
pages = vpc_v1.InstancesPager(client=vpc, limit=1).get_all()
check("pages", 2, len(pages))


def monitor(port):
    return {"delay": 5, "max_retries": 2, "timeout": 2, "type": "tcp", "port": port}


def pool(name, target):
    return {"name": name, "algorithm": "round_robin", "protocol": "tcp", "health_monitor": monitor(30080), "members": [{"port": 30080, "target": target}]}


def try_groups(lb, network):
    own = vpc_v1.SecurityGroup.from_dict(
        vpc.create_security_group(
            {"id": subnets.subnets[0].vpc.id},
            name="own",
            resource_group={"id": lb.resource_group.id},
            rules=[{"direction": "inbound", "protocol": "tcp", "port_min": 80, "port_max": 80, "remote": {"cidr_block": "192.0.2.7/32"}}],
        ).get_result()
    )
    check("rules", 1, len(own.rules))
    legal("direction", vpc_v1.SecurityGroupRulePrototypeSecurityGroupRuleProtocolTCPUDP.DirectionEnum, own.rules[0].direction)
    refused("the name again", "validation_unique_failed", lambda: vpc.create_security_group({"id": subnets.subnets[0].vpc.id}, name="own", resource_group={"id": lb.resource_group.id}))
    rule = vpc.create_security_group_rule(own.id, {"direction": "outbound", "protocol": "udp", "remote": {"cidr_block": "0.0.0.0/0"}}).get_result()
    vpc_v1.SecurityGroupRule.from_dict(rule)
    before = vpc.get_vpc_default_security_group(subnets.subnets[0].vpc.id).get_result()
    vpc_v1.SecurityGroup.from_dict(before)
    refused("the last group", "security_group_last", lambda: vpc.delete_security_group_target_binding(before["id"], lb.id))
    bound = vpc.create_security_group_target_binding(own.id, lb.id).get_result()
    check("bound", lb.id, vpc_v1.SecurityGroupTargetReferenceLoadBalancerReference.from_dict(bound).id)
    check("unbound", 204, vpc.delete_security_group_target_binding(before["id"], lb.id).get_status_code())
    groups = vpc_v1.SecurityGroupCollection.from_dict(vpc.list_security_groups(vpc_name="ocp4-vpc").get_result()).security_groups
    check("one of them", [lb.id], [t["id"] for g in groups if g.name == "own" for t in g.targets])
    check("shown", ["own"], [g.name for g in vpc_v1.LoadBalancer.from_dict(vpc.get_load_balancer(lb.id).get_result()).security_groups])
    refused("a group in use", "security_group_in_use", lambda: vpc.delete_security_group(own.id))
    vpc.create_security_group_target_binding(before["id"], lb.id)
    vpc.delete_security_group_target_binding(own.id, lb.id)
    check("a rule gone", 204, vpc.delete_security_group_rule(own.id, rule["id"]).get_status_code())
    check("a group gone", 204, vpc.delete_security_group(own.id).get_status_code())
    refused("a stale tag", "precondition_failed" if not network else "load_balancer_invalid_subnets", lambda: move(lb, "W/x"))
    if not network:
        moved = move(lb, vpc.get_load_balancer(lb.id).get_headers()["ETag"]).get_result()
        check("moved", [subnets.subnets[1].id], [n.id for n in vpc_v1.LoadBalancer.from_dict(moved).subnets])


def move(lb, tag):
    return vpc.update_load_balancer(lb.id, {"subnets": [{"id": subnets.subnets[1].id}]}, if_match=tag)


def try_kind(name, network, target):
    more = {"profile": {"name": "network-fixed"}} if network else {}
    listener = {"port": 80, "protocol": "tcp", "default_pool": {"name": "tcp-80-30080"}}
    made = vpc.create_load_balancer(
        is_public=True, subnets=[{"id": subnets.subnets[0].id}], name=name, pools=[pool("tcp-80-30080", target)], listeners=[listener], **more
    ).get_result()
    lb = vpc_v1.LoadBalancer.from_dict(made)
    legal("provisioning", vpc_v1.LoadBalancer.ProvisioningStatusEnum, lb.provisioning_status)
    legal("operating", vpc_v1.LoadBalancer.OperatingStatusEnum, lb.operating_status)
    refused("the name again", "load_balancer_duplicate_name", lambda: vpc.create_load_balancer(is_public=True, subnets=[{"id": subnets.subnets[0].id}], name=name))
    check("listed", [name], [b.name for b in vpc_v1.LoadBalancerCollection.from_dict(vpc.list_load_balancers().get_result()).load_balancers])
    listeners = vpc_v1.LoadBalancerListenerCollection.from_dict(vpc.list_load_balancer_listeners(lb.id).get_result()).listeners
    pools = vpc_v1.LoadBalancerPoolCollection.from_dict(vpc.list_load_balancer_pools(lb.id).get_result()).pools
    members = vpc_v1.LoadBalancerPoolMemberCollection.from_dict(vpc.list_load_balancer_pool_members(lb.id, pools[0].id).get_result()).members
    check("parts", (1, 1, 1), (len(listeners), len(pools), len(members)))
    refused("a pool in use", "pool_delete_conflict", lambda: vpc.delete_load_balancer_pool(lb.id, pools[0].id))
    replaced = vpc.replace_load_balancer_pool_members(lb.id, pools[0].id, [{"port": 30081, "target": target}]).get_result()
    check("replaced", 30081, vpc_v1.LoadBalancerPoolMemberCollection.from_dict(replaced).members[0].port)
    patched = vpc.update_load_balancer_pool(lb.id, pools[0].id, {"name": "tcp-80-30081"}).get_result()
    check("patched", "tcp-80-30081", vpc_v1.LoadBalancerPool.from_dict(patched).name)
    second = vpc.create_load_balancer_pool(
        lb.id, algorithm="round_robin", health_monitor=monitor(30443), protocol="tcp", name="tcp-443-30443", members=[{"port": 30443, "target": target}]
    ).get_result()
    more = vpc.create_load_balancer_listener(lb.id, protocol="tcp", port=443, default_pool={"id": vpc_v1.LoadBalancerPool.from_dict(second).id}).get_result()
    at = vpc_v1.LoadBalancerListener.from_dict(more)
    refused("the port again", "listener_duplicate_port", lambda: vpc.create_load_balancer_listener(lb.id, protocol="tcp", port=443))
    try_groups(lb, network)
    check("listener gone", 202, vpc.delete_load_balancer_listener(lb.id, at.id).get_status_code())
    check("gone", 202, vpc.delete_load_balancer(lb.id).get_status_code())
    refused("no load balancer", "load_balancer_not_found", lambda: vpc.get_load_balancer(lb.id))


try_kind("application", False, {"address": "10.0.0.4"})
try_kind("network", True, {"id": instances.instances[0].id})
print("the client is content")
