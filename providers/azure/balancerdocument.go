package azure

import "iter"

// loadBalancer is the document of a load balancer.
type loadBalancer struct {
	resource
	// recreated is set where plan expects that another one of the same ID is deleted before.
	recreated  bool
	Properties struct {
		object
		State         string      `json:"provisioningState"`
		Fronts        []*frontend `json:"frontendIPConfigurations"`
		Pools         []*pool     `json:"backendAddressPools"`
		Rules         []*lbRule   `json:"loadBalancingRules"`
		Probes        []*probe    `json:"probes"`
		OutboundRules []*lbRule   `json:"outboundRules"`
		NATRules      []*lbRule   `json:"inboundNatRules"`
		NATPools      []*lbRule   `json:"inboundNatPools"`
	} `json:"properties"`
}

type frontend struct {
	subresource
	Properties frontendProperties `json:"properties"`
	Zones      []string           `json:"zones"`
}

type frontendProperties struct {
	object
	PublicIP   subresource `json:"publicIPAddress"`
	Subnet     subresource `json:"subnet"`
	Allocation string      `json:"privateIPAllocationMethod"`
	Address    string      `json:"privateIPAddress"`
	Version    string      `json:"privateIPAddressVersion"`
}

type pool struct {
	subresource
	Properties struct {
		object
		// Configs are members by network interface, which Azure lists here; Members are those by address.
		Configs []*subresource `json:"backendIPConfigurations"`
		Members []*poolMember  `json:"loadBalancerBackendAddresses"`
		Network subresource    `json:"virtualNetwork"`
	} `json:"properties"`
}

type poolMember struct {
	subresource
	Properties poolMemberProperties `json:"properties"`
}

type poolMemberProperties struct {
	object
	IP string `json:"ipAddress"`
}

// lbRule is a rule of any kind.
type lbRule struct {
	subresource
	Properties lbRuleProperties `json:"properties"`
}

type lbRuleProperties struct {
	object
	Front        subresource    `json:"frontendIPConfiguration"`
	Fronts       []*subresource `json:"frontendIPConfigurations"`
	Pool         subresource    `json:"backendAddressPool"`
	Probe        subresource    `json:"probe"`
	Protocol     string         `json:"protocol"`
	FrontPort    int            `json:"frontendPort"`
	BackPort     int            `json:"backendPort"`
	Distribution string         `json:"loadDistribution"`
	Floating     bool           `json:"enableFloatingIP"`
	NoSNAT       bool           `json:"disableOutboundSnat"`
	Reset        *bool          `json:"enableTcpReset"`
	Idle         int            `json:"idleTimeoutInMinutes"`
}

type probe struct {
	subresource
	Properties probeProperties `json:"properties"`
}

type probeProperties struct {
	object
	Protocol  string `json:"protocol"`
	Port      int    `json:"port"`
	Path      string `json:"requestPath"`
	Interval  int    `json:"intervalInSeconds"`
	Threshold int    `json:"probeThreshold"`
	// Number has the place of Threshold in older versions.
	Number *int `json:"numberOfProbes"`
}

func (lb *loadBalancer) exists() bool { return lb.ID != "" }

func (lb *loadBalancer) front(name string) *frontend { return findByName(lb.Properties.Fronts, name) }

func (lb *loadBalancer) pool(name string) *pool { return findByName(lb.Properties.Pools, name) }

// frontsOf visits the frontends of load balancers.
func frontsOf(lbs ...*loadBalancer) iter.Seq2[*loadBalancer, *frontend] {
	return func(yield func(*loadBalancer, *frontend) bool) {
		for _, lb := range lbs {
			for _, f := range lb.Properties.Fronts {
				if !yield(lb, f) {
					return
				}
			}
		}
	}
}

// ruleKind is a list of rules in a load balancer.
type ruleKind struct {
	name  string
	rules []*lbRule
}

// otherRules are those kinds of rules that Services do not ask for.
func (lb *loadBalancer) otherRules() []ruleKind {
	p := lb.Properties
	return []ruleKind{{"outboundRules", p.OutboundRules}, {"inboundNatRules", p.NATRules}, {"inboundNatPools", p.NATPools}}
}

// ips are the members of a pool by address; nil is a pool that does not exist.
func (p *pool) ips() (ips []string) {
	if p == nil {
		return nil
	}
	for _, m := range p.Properties.Members {
		if m.Properties.IP != "" {
			ips = append(ips, m.Properties.IP)
		}
	}
	return ips
}
