"""Drives a simulated management server with two clients that nobody here wrote. Arguments: URL of the API, API key, secret key."""

import sys
import urllib.parse

URL, KEY, SECRET = sys.argv[1:4]


def check(what, want, have):
    if want != have:
        sys.exit(f"{what}: want {want!r}, have {have!r}")


def refused(what, code, call):
    try:
        call()
    except Exception as e:  # each client has its own
        error = getattr(e, "error", None)
        have = error["errorcode"] if isinstance(error, dict) else str(e)
        if code != have and str(code) not in str(have):
            sys.exit(f"{what}: want {code}, have {have!r}")
        return
    sys.exit(f"{what}: it is not refused")


def generic_client(method):
    """cs signs, polls jobs and pages for any command."""
    from cs import CloudStack

    cloud = CloudStack(endpoint=URL, key=KEY, secret=SECRET, method=method, poll_interval=0.02, timeout=60, job_timeout=60)
    stranger = CloudStack(endpoint=URL, key=KEY, secret="wrong", method=method, timeout=60)
    refused("a wrong secret key", 401, stranger.listZones)
    check("version", "4.22.0.0", cloud.listCapabilities()["capability"]["cloudstackversion"])
    check("nobody", {}, cloud.listVirtualMachines(name="nobody"))
    machines = cloud.listVirtualMachines(listall=True, details=["min", "nics"], fetch_list=True)
    check("machines", ["one", "two"], sorted(m["name"] for m in machines))
    network = machines[0]["nic"][0]["networkid"]

    address = cloud.associateIpAddress(networkid=network, fetch_result=True)["ipaddress"]
    rule = cloud.createLoadBalancerRule(
        name="web-tcp-80", algorithm="roundrobin", publicipid=address["id"], networkid=network, publicport=80, privateport=30080,
        protocol="tcp", openfirewall=False, cidrlist=["10.0.0.0/8", "192.0.2.0/24"], fetch_result=True,
    )["loadbalancer"]
    check("networks", {"10.0.0.0/8", "192.0.2.0/24"}, set(rule["cidrlist"].split(" ")))
    ids = [m["id"] for m in machines]
    check("assigned", {"success": True}, cloud.assignToLoadBalancerRule(id=rule["id"], virtualmachineids=ids, fetch_result=True))
    refused("assigned again", 530, lambda: cloud.assignToLoadBalancerRule(id=rule["id"], virtualmachineids=ids[:1], fetch_result=True))
    members = cloud.listLoadBalancerRuleInstances(id=rule["id"], fetch_list=True)
    check("members", sorted(ids), sorted(m["id"] for m in members))
    wall = cloud.createFirewallRule(
        ipaddressid=address["id"], protocol="tcp", startport=80, endport=80, cidrlist=["0.0.0.0/0"], fetch_result=True
    )["firewallrule"]
    check("port", (80, 80), (wall["startport"], wall["endport"]))
    policy = cloud.createLBStickinessPolicy(
        lbruleid=rule["id"], name="sticky", methodname="LbCookie", param=[{"name": "cookie-name", "value": "c"}], fetch_result=True
    )["stickinesspolicies"]["stickinesspolicy"][0]
    check("parameters", {"cookie-name": "c"}, policy["params"])
    refused("a rule on the same port", 537, lambda: cloud.createLoadBalancerRule(
        name="other", algorithm="source", publicipid=address["id"], networkid=network, publicport=80, privateport=1))
    refused("an unknown algorithm", 431, lambda: cloud.createLoadBalancerRule(
        name="other", algorithm="random", publicipid=address["id"], networkid=network, publicport=81, privateport=1))
    refused("a command of admins", 432, cloud.listManagementServersMetrics)
    cloud.updateLoadBalancerRule(id=rule["id"], algorithm="source", fetch_result=True)
    check("algorithm", "source", cloud.listLoadBalancerRules(id=rule["id"], fetch_list=True)[0]["algorithm"])
    cloud.removeFromLoadBalancerRule(id=rule["id"], virtualmachineids=ids, fetch_result=True)
    cloud.deleteFirewallRule(id=wall["id"], fetch_result=True)
    cloud.deleteLoadBalancerRule(id=rule["id"], fetch_result=True)
    cloud.disassociateIpAddress(id=address["id"], fetch_result=True)


def balancing_client():
    """Libcloud knows machines, addresses, firewall rules and load balancers."""
    from libcloud.compute.drivers.cloudstack import CloudStackNodeDriver
    from libcloud.loadbalancer.base import Algorithm, Member
    from libcloud.loadbalancer.drivers.cloudstack import CloudStackLBDriver

    place = urllib.parse.urlsplit(URL)
    where = {"key": KEY, "secret": SECRET, "secure": False, "host": place.hostname, "port": place.port, "path": place.path}
    compute, balancing = CloudStackNodeDriver(**where), CloudStackLBDriver(**where)
    compute.connection.poll_interval = balancing.connection.poll_interval = 0.02
    machines = compute.list_nodes()
    check("machines", ["one", "two"], sorted(m.name for m in machines))
    check("zones", ["zone-1"], [z.name for z in compute.list_locations()])
    network = compute.ex_list_networks()[0]
    address = compute.ex_allocate_public_ip(network_id=network.id)
    wall = compute.ex_create_firewall_rule(address=address, cidr_list="192.0.2.0/24", protocol="tcp", start_port=80, end_port=80)
    check("firewall rules", [wall.id], [r.id for r in compute.ex_list_firewall_rules()])
    compute.ex_delete_firewall_rule(wall)
    compute.ex_release_public_ip(address)
    members = [Member(m.id, m.private_ips[0], 30080) for m in machines]
    balancer = balancing.create_balancer(
        name="web", members=members[:1], protocol="tcp", port=80, private_port=30080, algorithm=Algorithm.ROUND_ROBIN, network_id=network.id
    )
    check("balancers", [("web", "80")], [(b.name, b.port) for b in balancing.list_balancers()])
    balancer.attach_member(members[1])
    check("members", sorted(m.id for m in machines), sorted(m.id for m in balancer.list_members()))
    balancer.detach_member(members[0])
    check("members", [machines[1].id], [m.id for m in balancer.list_members()])
    balancing.destroy_balancer(balancer)
    check("balancers", [], balancing.list_balancers())
    check("its address", [], [a.address for a in compute.ex_list_public_ips() if a.address == balancer.ip])


generic_client("get")
generic_client("post")
balancing_client()
print("all clients are content")
