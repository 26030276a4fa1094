package events

// Row tells of one event: what it means, and what to do.
type Row struct {
	// On is the kind of the object that it is written on.
	On string `json:"on"`
	// Reason is the event's reason, which is also its name.
	Reason string `json:"reason"`
	// Type is Warning or Normal.
	Type string `json:"type"`
	// What happened, and what to do; the latter is empty where there is nothing to do.
	What string `json:"what"`
	Do   string `json:"do,omitempty"`
}

// Table returns the events that are not one cloud's alone. Which clouds write them shows from their code. The others are part of
// the description of their cloud.
func Table() []Row {
	return []Row{
		{"Node", "NodeInitializationFailed", "Warning", "The cloud's answer about a new Node makes it impossible to initialise it: no instance of that name, several of one name, refused credential, rate limit.", "The message names the next step. It is tried again by itself."},
		{"Node", "NodeDeletionHeld", "Warning", "The cloud says that the instance is gone, but the Node is kept: too many vanish unannounced, or no instance of the cluster is seen by which the account could be told to be the right one. The message says what ends it.", "See [node deletion](node-deletion.md)."},
		{"Node", "NodeInstanceNotVerified", "Warning", "`--verify-node-instances` is set, and the cloud does not show that the instance behind the provider ID is this Node's. The Node is no backend and no next hop.", "Name or tag the instance as the cloud's page says; if the provider ID is wrong, find out who wrote it."},
		{"Node", "RouteRefused", "Warning", "The Node gets no route, and one that was made is removed: its pod range is outside `--cluster-cidr` or overlaps that of an older Node, or its instance is not verified.", "Find out who wrote `spec.podCIDRs`; delete the Node and let it register again."},
		{"Node", "NodeNotOurs", "Normal", "The Node belongs to another cloud or is outside `--node-selector`. It is left alone.", "Nothing, unless it should be ours."},
		{"Service", "LoadBalancerConfigError", "Warning", "Annotations, ports or nodes of which no load balancer can be made, or a portable annotation that this cloud cannot serve. Every fault is named, with the value and the legal ones. Nothing is created or changed.", "Change the annotation."},
		{"Service", "LoadBalancerAnnotationIgnored", "Warning", "An annotation has no effect: its value counts as the default, this type of load balancer does not look at it, the cloud has nothing for a portable annotation, or an annotation of the cloud's own contradicts that and wins.", "Remove or change it."},
		{"Service", "LoadBalancerDefaulted", "Normal", "The Service has annotations by the defaults of its class (`--service-defaults`). Told once, at `-v=4`.", ""},
		{"Service", "LoadBalancerAnnotationFixed", "Warning", "An annotation was changed that is fixed when the load balancer is created. It has no effect; the type is set back.", "Delete and create the Service to change it."},
		{"Service", "LoadBalancerRetained", "Normal", "The Service is gone or is no load balancer any more; its load balancer stays in the cloud, as `anyccm.io/retain-load-balancer` or a disown annotation asks, or because a user made it. Or the Service has another one by its annotation, and nothing shows that the one before was made for it by this program.", "Delete it in the cloud if it is not needed."},
		{"Service", "LoadBalancerWaiting", "Normal", "The cloud works on the load balancer for longer than usual; the message says what is waited for.", ""},
		{"Service", "LoadBalancerNotOurs", "Warning", "The Service claims a load balancer of another cluster, of another Service, or of nobody that can be told. It is neither changed nor deleted.", "Choose another name or ID; see [whose load balancer is it](load-balancer-ownership.md)."},
		{"Service", "LoadBalancerClaimed", "Warning", "Another Service claims this Service's load balancer by its annotations or its name. That is refused.", "Ask the author of the other Service."},
		{"Service", "LoadBalancerSourceRangesIgnored", "Warning", "Nobody is kept out: this Octavia, or its provider, cannot restrict who comes in; the NodeBalancer has a firewall that somebody else attached, which stays; or a network load balancer of AWS hides its clients from the nodes and has no security group that gets rules, or the security groups are named by an annotation.", "OpenStack: use `manage-security-groups` with ovn, or another provider. Linode: detach that firewall. AWS: the message says what to set."},
		{"Service", "LoadBalancerSingleStack", "Warning", "The Service wants two IP families, and its load balancer gets an address of one.", "The message says what is missing."},
		{"Lease", "CloudAPIUnavailable", "Warning", "The cloud's API cannot be used, and why.", "Check network, credential and the cloud's status page. Nodes and load balancers stay as they are."},
		{"Lease", "CloudAPIAvailable", "Normal", "The cloud's API works again.", ""},
	}
}
