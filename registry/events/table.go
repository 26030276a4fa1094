package events

import "slices"

// Row documents one event: its meaning, and the advice.
type Row struct {
	// On is the kind of the object that it is written on.
	On string `json:"on"`
	// Reason is the event's reason, which is also its name.
	Reason string `json:"reason"`
	// Type is Warning or Normal.
	Type string `json:"type"`
	// What happened, and what to do; the latter is empty if there is nothing to do.
	What string `json:"what"`
	Do   string `json:"do,omitempty"`
	// Lasting is set if the event follows from the Service alone, so that each attempt would say the same: see TellOnce.
	Lasting bool `json:"-"`
}

// Table returns the events of more than one cloud; which clouds write them follows from their code. The others are part of their cloud's
// description.
func Table() []Row {
	return slices.Concat(nodeRows(), nodeUpdateRows(), annotationRows(), serviceRows(), leaseRows())
}

func nodeRows() []Row {
	return []Row{
		{
			On: "Node", Reason: "NodeInitializationFailed", Type: "Warning",
			What: "A new Node cannot be initialised: no instance or several have its name, the credential is refused, or the rate limit is exceeded.",
			Do:   "The message names the next step. It is retried automatically.",
		},
		{
			On: "Node", Reason: "NodeDeletionHeld", Type: "Warning",
			What: "The cloud says that the instance is gone, but the Node is kept. Too many vanish without an announcement, or no other instance of the cluster proves that this is the right account. The message says how the hold ends.",
			Do:   "See [node deletion](node-deletion.md).",
		},
		{
			On: "Node", Reason: "NodeDeletionHoldEnded", Type: "Normal",
			What: "The hold of a Node has ended: its instance was found again and the Node stays, or it is deleted now.",
			Do:   "Nothing.",
		},
		{
			On: "Node", Reason: "NodeInstanceNotVerified", Type: "Warning",
			What: "`--verify-node-instances` is set, and the cloud does not confirm that the provider ID's instance is this Node's. The Node becomes neither backend nor next hop.",
			Do:   "Name or tag the instance as the cloud's page says; if the provider ID is wrong, find out who wrote it.",
		},
		{
			On: "Node", Reason: "RouteRefused", Type: "Warning",
			What: "The Node gets no route, and an existing one is removed: its pod range is outside `--cluster-cidr` or overlaps that of an older Node, or its instance is not verified.",
			Do:   "Find out who wrote `spec.podCIDRs`; delete the Node and let it register again.",
		},
		{
			On: "Node", Reason: "CIDRNotAvailable", Type: "Warning",
			What: "The Node gets no pod range: none is free, or its instance has none in the cloud.",
			Do:   "The message names the possible remedies.",
		},
		{
			On: "Node", Reason: "CIDRAssignmentFailed", Type: "Warning",
			What: "The pod range could not be written on the Node.",
			Do:   "It is retried automatically.",
		},
		{
			On: "Node", Reason: "PodCIDRConflict", Type: "Warning",
			What: "An older Node has the same pod range. Two programs give ranges, such as kube-controller-manager with `--allocate-node-cidrs` and this one.",
			Do:   "Switch one of them off, delete the Node and let it register again.",
		},
		{
			On: "Node", Reason: "NodeNotOurs", Type: "Normal",
			What: "The Node belongs to another cloud or is outside `--node-selector`. It is left alone.",
			Do:   "Nothing, unless it should be ours.",
		},
	}
}

// nodeUpdateRows are the events about labels and certificates, which follow the cloud.
func nodeUpdateRows() []Row {
	return []Row{
		{
			On: "Node", Reason: "NodeLabelsUpdated", Type: "Normal",
			What: "The instance changed in the cloud, such as its type or its tags, and the Node's labels were corrected. The message has the old and the new values.",
		},
		{
			On: "Node", Reason: "NodeTagsIgnored", Type: "Warning",
			What: "Tags of the instance give no label, although `--node-labels-from-tags` names them: the label would be illegal or belongs to somebody else, two tags give one label, or there are too many. A label that the Node has already stays.",
			Do:   "Correct the tags, or the rules; see [labels of Nodes](node-labels.md).",
		},
		{
			On: "Node", Reason: "NodeRecordForged", Type: "Warning",
			What: "The Node's managed fields name `anyccm-node-labels` or `anyccm-node-tags` for more than labels. Somebody else wrote that, such as the Node's kubelet, and a write of labels could remove what the entry names. The labels are not written.",
			Do:   "Remove that entry of `metadata.managedFields`, and find out who wrote it; see [labels of Nodes](node-labels.md).",
		},
		{
			On: "Node", Reason: "NodeTopologyChanged", Type: "Warning",
			What: "The cloud has another zone or region for the instance than the Node's labels, which stay: volumes and running Pods keep the old zone.",
			Do:   "Delete the Node and let it register again, or set `--update-topology-labels`; see [labels of Nodes](node-labels.md).",
		},
		{
			On: "Node", Reason: "ServingCertificateNotApproved", Type: "Warning",
			What: "The kubelet asks for a serving certificate with a name or an address that the cloud does not attest to its instance, or its request is malformed. The message says which. The request is neither approved nor denied.",
			Do:   "See [serving certificates](serving-certificates.md).",
		},
	}
}

// annotationRows are the events about a Service's settings.
func annotationRows() []Row {
	return []Row{
		{
			On: "Service", Reason: "LoadBalancerConfigError", Type: "Warning",
			What: "No load balancer can be created from these annotations, ports or nodes, or the cloud cannot serve a portable annotation. The message names every problem, with the value and the allowed values. Nothing is created or changed.",
			Do:   "Change the annotation.",
		},
		{
			On: "Service", Reason: "LoadBalancerAnnotationIgnored", Type: "Warning", Lasting: true,
			What: "An annotation has no effect: its name is unknown, perhaps misspelt, the default applies instead of its value, this type of load balancer ignores it, the cloud has no equivalent for a portable annotation, or one of the cloud's own annotations contradicts that and wins.",
			Do:   "Remove or change it.",
		},
		{
			On: "Service", Reason: "LoadBalancerFieldIgnored", Type: "Warning", Lasting: true,
			What: "A field of the Service has no effect on the load balancer, or a weaker one, or asks for more than the cloud takes from most accounts. The message names the field and the effect.",
			Do:   "Remove the field, or accept the effect.",
		},
		{
			On: "Service", Reason: "LoadBalancerDefaulted", Type: "Normal", Lasting: true,
			What: "Defaults of its class (`--service-defaults`) set annotations of the Service. Written at `-v=4`.",
		},
		{
			On: "Service", Reason: "LoadBalancerAnnotationFixed", Type: "Warning", Lasting: true,
			What: "An annotation, or a field such as spec.loadBalancerIP, differs from the load balancer and counts only at its creation.",
			Do:   "Delete and create the Service to change it.",
		},
	}
}

// serviceRows are the events about a load balancer's state.
func serviceRows() []Row {
	return []Row{
		{
			On: "Service", Reason: "LoadBalancerRetained", Type: "Normal",
			What: "The Service was deleted or changed its type; its load balancer stays in the cloud, because of `anyccm.io/retain-load-balancer` or a disown annotation, or because a user created it. Or an annotation gave the Service another load balancer, and nothing proves that this program created the previous one for it.",
			Do:   "Delete it in the cloud if you do not need it.",
		},
		{
			On: "Service", Reason: "LoadBalancerFailed", Type: "Warning",
			What: "The cloud says that the load balancer has failed. It is no longer changed.",
			Do:   "Check the load balancer and its operations in the cloud's console. Delete it, or the Service, to have it created again.",
		},
		{
			On: "Service", Reason: "LoadBalancerLeftBehind", Type: "Warning",
			What: "A load balancer, or a part of one, stays in the cloud. Nothing proves that it was created for the Service, the Service had it under another name, others use it, or it is not found, perhaps for lack of permission. The message says which.",
			Do:   "Delete it if nobody needs it.",
		},
		{
			On: "Service", Reason: "LoadBalancerWaiting", Type: "Normal",
			What: "The cloud takes longer than usual to change the load balancer; the message says what it is waiting for.",
		},
		{
			On: "Service", Reason: "NodesWithoutInstance", Type: "Warning",
			What: "Nodes have no provider ID, and their instances are not found. If no node has a known instance, an existing load balancer is not changed.",
			Do:   "Start the kubelets with `--cloud-provider=external`, or with `--provider-id`.",
		},
		{
			On: "Service", Reason: "LoadBalancerMembersLimited", Type: "Warning",
			What: "There are more nodes than the load balancer, or a part of it, takes as backends. Those that it has keep their places; the others receive no traffic.",
			Do:   "Choose the nodes as the message says, or by externalTrafficPolicy.",
		},
		{
			On: "Service", Reason: "LoadBalancerNotOurs", Type: "Warning",
			What: "The Service claims a load balancer of another cluster or another Service, or one whose owner is unknown. It is neither changed nor deleted.",
			Do:   "Choose another name or ID; see [load balancer ownership](load-balancer-ownership.md).",
		},
		{
			On: "Service", Reason: "LoadBalancerClaimed", Type: "Warning",
			What: "Another Service claims this Service's load balancer by its annotations or its name. The claim is refused.",
			Do:   "Ask the author of the other Service.",
		},
		{
			On: "Service", Reason: "LoadBalancerSourceRangesIgnored", Type: "Warning",
			What: "The source ranges have no effect: this Octavia, or its provider, cannot restrict clients; the NodeBalancer has a firewall that somebody else attached, which stays; or a network load balancer of AWS hides its clients from the nodes and has no security group that gets rules, or the security groups are named by an annotation; or NSX's load balancer lets every client in.",
			Do:   "OpenStack: use `manage-security-groups` with ovn, or another provider. Linode: detach that firewall. AWS: the message says what to set.",
		},
		{
			On: "Service", Reason: "LoadBalancerSingleStack", Type: "Warning",
			What: "The Service requests an IP family, or two, for which its load balancer has no address.",
			Do:   "The message says what is missing.",
		},
	}
}

func leaseRows() []Row {
	return []Row{
		{
			On: "Lease", Reason: "ServiceDefaultsInvalid", Type: "Warning",
			What: "The file of `--service-defaults` changed and has faults, which are listed with their lines. The last valid one stays in force.",
			Do:   "Fix the file; it is read again automatically.",
		},
		{
			On: "Lease", Reason: "ServiceDefaultsPending", Type: "Normal",
			What: "The file of `--service-defaults` names other load balancer classes than at the start. New classes are served after a restart. Removed classes are served until then, with their former defaults.",
			Do:   "Restart the program when the file is complete.",
		},
		{On: "Lease", Reason: "ServiceDefaultsValid", Type: "Normal", What: "The file of `--service-defaults` is valid again, and in force."},
		{
			On: "Lease", Reason: "CloudAPIUnavailable", Type: "Warning",
			What: "The cloud's API cannot be used, with the reason.",
			Do:   "Check network, credential and the cloud's status page. Nodes and load balancers stay as they are.",
		},
		{
			On: "Lease", Reason: "CloudAPIAvailable", Type: "Normal",
			What: "The cloud's API works again.",
		},
	}
}
