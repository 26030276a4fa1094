package awssim

import (
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
)

// Listener is a port of a load balancer.
type Listener struct {
	ARN, LoadBalancer, Protocol, Policy, TargetGroup string
	Port                                             int
	Certificates                                     []string
	Tags                                             Tags
}

// Listeners returns all listeners.
func (s *Sim) Listeners() []Listener { return copies(s, &s.listeners, Listener.clone) }

func (s *Sim) listenersOf(arn string) []*Listener {
	return slices.DeleteFunc(s.listeners.All(), func(l *Listener) bool { return l.LoadBalancer != arn })
}

func (s *Sim) describeListeners(p *params) (answer, error) {
	of := p.text("LoadBalancerArn")
	if s.networks.ByID[of] == nil {
		return nil, refuse("LoadBalancerNotFound", "Load balancer '%s' not found", of)
	}
	list, next := page(s, p, s.listenersOf(of), "PageSize", "Marker", 400, 400)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("Listeners", "member", list, showListener), tx("NextMarker", next)}, nil
}

func showListener(l *Listener) []elem {
	return []elem{
		tx("ListenerArn", l.ARN), tx("LoadBalancerArn", l.LoadBalancer), tx("Port", l.Port), tx("Protocol", l.Protocol), tx("SslPolicy", l.Policy),
		listOf("Certificates", "member", l.Certificates, func(c string) []elem { return []elem{tx("CertificateArn", c)} }),
		el("DefaultActions", el("member", tx("Type", "forward"), tx("Order", 1), tx("TargetGroupArn", l.TargetGroup))),
	}
}

// readListener reads what a call asks of a listener.
func (s *Sim) readListener(p *params, l *Listener) {
	if n := p.within("Port", 1, 65535); n != nil {
		l.Port = *n
	}
	if v := p.choice("Protocol", "TCP", "UDP", "TLS", "TCP_UDP"); v != "" {
		l.Protocol = v
	}
	if p.isSet("SslPolicy") {
		l.Policy = p.text("SslPolicy")
	}
	if in := p.structs("Certificates"); in != nil || p.isSet("Certificates") {
		l.Certificates = nil
		for _, c := range in {
			l.Certificates = append(l.Certificates, c.required("CertificateArn"))
		}
	}
	for _, a := range p.structs("DefaultActions") {
		a.choice("Type", "forward")
		a.number("Order")
		l.TargetGroup = a.required("TargetGroupArn")
	}
	if l.Protocol != "TLS" {
		l.Policy, l.Certificates = "", nil
	} else if l.Policy == "" {
		l.Policy = "ELBSecurityPolicy-2016-08"
	}
}

func (s *Sim) checkListener(l *Listener) error {
	t := s.targets.ByID[l.TargetGroup]
	if t == nil {
		return refuse("TargetGroupNotFound", "Target groups '%s' not found", l.TargetGroup)
	}
	for _, have := range s.listenersOf(l.LoadBalancer) {
		if have.Port == l.Port && have.ARN != l.ARN {
			return refuse("DuplicateListener", "A listener already exists on this port for this load balancer '%s'", l.LoadBalancer)
		}
	}
	for _, other := range s.attached(l.TargetGroup) {
		if other != l.LoadBalancer {
			return refuse("TargetGroupAssociationLimit", "The target group is used by another load balancer")
		}
	}
	return s.checkProtocols(l, t)
}

// checkProtocols refuses what does not go together of a listener, its target group and its load balancer.
func (s *Sim) checkProtocols(l *Listener, t *TargetGroup) error {
	fits := map[string][]string{"TCP": {"TCP"}, "UDP": {"UDP"}, "TLS": {"TCP", "TLS"}, "TCP_UDP": {"TCP_UDP"}}
	lb := s.networks.ByID[l.LoadBalancer]
	switch {
	case !slices.Contains(fits[l.Protocol], t.Protocol):
		return refuse("IncompatibleProtocols", "The listener protocol %s does not go with the target group protocol %s", l.Protocol, t.Protocol)
	case l.Protocol == "TLS" && len(l.Certificates) != 1:
		return refuse("ValidationError", "A certificate must be specified for TLS listeners")
	case l.Protocol == "TLS" && !strings.HasPrefix(l.Policy, "ELBSecurityPolicy-"):
		return refuse("SSLPolicyNotFound", "SSL policy '%s' not found", l.Policy)
	case l.Protocol == "TLS" && !strings.HasPrefix(l.Certificates[0], "arn:"):
		return refuse("CertificateNotFound", "Certificate '%s' not found", l.Certificates[0])
	case strings.Contains(l.Protocol, "UDP") && lb.AddressType == "dualstack":
		return refuse("InvalidConfigurationRequest", "A dualstack load balancer does not support the protocol %s here", l.Protocol)
	case t.AddressType == "ipv6" && lb.AddressType != "dualstack":
		return refuse("InvalidConfigurationRequest", "An ipv6 target group needs a dualstack load balancer")
	}
	return nil
}

func (s *Sim) createListener(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	l := &Listener{LoadBalancer: lb.ARN, Tags: p.tags("Tags")}
	s.readListener(p, l)
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := s.checkListener(l); err != nil {
		return nil, err
	}
	if len(s.listenersOf(lb.ARN)) >= awslimits.Listeners.Max {
		return nil, refuse("TooManyListeners", "The maximum number of listeners has been reached on load balancer '%s'", lb.ARN)
	}
	l.ARN = s.arn(strings.TrimPrefix(strings.SplitN(lb.ARN, ":", 6)[5], "loadbalancer/"))
	l.ARN = strings.Replace(l.ARN, ":net/", ":listener/net/", 1)
	s.listeners.Put(l.ARN, l)
	return answer{listOf("Listeners", "member", []*Listener{l}, showListener)}, nil
}

func (s *Sim) modifyListener(p *params) (answer, error) {
	l := s.listeners.ByID[p.required("ListenerArn")]
	if l == nil {
		return nil, refuse("ListenerNotFound", "One or more listeners not found")
	}
	changed := *l
	s.readListener(p, &changed)
	if err := p.finish(); err != nil {
		return nil, err
	}
	if l.Protocol != "TLS" && changed.Protocol == "TLS" && !p.isSet("SslPolicy") {
		// A creation has a default; a change has none.
		return nil, refuse("ValidationError", "A security policy must be specified for TLS listeners")
	}
	if err := s.checkListener(&changed); err != nil {
		return nil, err
	}
	*l = changed
	return answer{listOf("Listeners", "member", []*Listener{l}, showListener)}, nil
}

func (s *Sim) deleteListener(p *params) (answer, error) {
	arn := p.required("ListenerArn")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if s.listeners.ByID[arn] == nil {
		return nil, refuse("ListenerNotFound", "One or more listeners not found")
	}
	s.listeners.Remove(arn)
	return nil, nil
}
