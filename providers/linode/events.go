package linode

// Reasons of the events that the provider writes on Services.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
	// eventRangesIgnored: spec.loadBalancerSourceRanges has no effect.
	eventRangesIgnored = "LoadBalancerSourceRangesIgnored"
)
