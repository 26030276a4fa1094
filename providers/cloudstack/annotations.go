package cloudstack

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Annotation names. The first three and annotationAssociated are those of CloudStack's own controller; address and keep-ip come from a
// widely used fork.
const (
	annotationPrefix        = "service.beta.kubernetes.io/cloudstack-load-balancer-"
	annotationProxyProtocol = annotationPrefix + "proxy-protocol"
	annotationHostname      = annotationPrefix + "hostname"
	annotationSourceCIDRs   = annotationPrefix + "source-cidrs"
	annotationAddress       = annotationPrefix + "address"
	annotationKeepIP        = annotationPrefix + "keep-ip"
	// annotationAssociated is set if the requested address was acquired for the Service.
	annotationAssociated = annotationPrefix + "ip-associated-by-controller"
	// The next two exist in CloudStack's own controller after version 1.2.
	annotationStickiness       = annotationPrefix + "stickiness-method-name"
	annotationStickinessParams = annotationPrefix + "stickiness-method-param"

	// annotationRecord holds the address acquired for the Service, or the time of the request.
	annotationRecord = "anyccm.io/cloudstack-address-id"
	// annotationSticky is set while rules have stickiness policies, so that these are found when the Service no longer requests any.
	annotationSticky = "anyccm.io/cloudstack-stickiness"

	everybody = "0.0.0.0/0"
)

// settings holds the parsed annotations of a Service.
type settings struct {
	ProxyProtocol bool
	Hostname      string
	SourceCIDRs   []string
	// Address is the requested one, by annotation or spec.loadBalancerIP.
	Address    string
	KeepIP     bool
	Associated bool
	// Record is only checked here: recordOf reads what was written since.
	Record string

	Stickiness, StickinessParams string
	// sticky holds the request of these two, by port.
	sticky map[int]stickiness
	Sticky bool
}

const ipv4Form = `^\s*` + schema.IPv4Pattern + `\s*$`

// Annotations is the table of annotations.
var Annotations = schema.Annotations[settings]{
	schema.BoolAnnotation(func(s *settings) *bool { return &s.ProxyProtocol }, schema.AnnotationRow{
		Key: annotationProxyProtocol, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Lenient: true, Help: "TCP ports send the PROXY protocol, version 1, to the nodes."},
		Serves: []schema.Serves{{Portable: portable.ProxyProtocol, Values: map[string]string{
			portable.ProxyNone: "false", portable.ProxyV1: "true",
		}}},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Hostname }, schema.AnnotationRow{
		Key: annotationHostname, Changes: schema.InPlace,
		Spec:   schema.Spec{Help: "The status shows this name instead of the address, so that traffic from inside of the cluster goes through the load balancer."},
		Serves: []schema.Serves{{Portable: portable.Hostname}},
	}),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.SourceCIDRs }, schema.AnnotationRow{
		Key: annotationSourceCIDRs, Changes: schema.InPlace,
		Spec: schema.Spec{
			DefaultHelp: everybody + ", as an empty value", Check: checkCIDRs,
			Help: "Networks that the load balancer itself lets in. The firewall has those of spec.loadBalancerSourceRanges. Before CloudStack 4.22 a " +
				"change makes the rules again.",
		},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Address }, schema.AnnotationRow{
		Key: annotationAddress, Changes: schema.AtCreation,
		Spec: schema.Spec{
			Rules: []schema.Rule{schema.Must(ipv4Form, "is not one IPv4 address")},
			Help:  "Public address to use; before spec.loadBalancerIP. One that is free is taken, and released with the Service.",
		},
		Serves: []schema.Serves{
			{Portable: portable.Address, Rules: []schema.Rule{schema.Must(ipv4Form, "is not one IPv4 address, which is all that these load balancers have")}, Only: "one"},
			{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: ""}}, // all are public
		},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.KeepIP }, schema.AnnotationRow{
		Key: annotationKeepIP, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Help: "The address stays when the Service goes."},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Stickiness }, schema.AnnotationRow{
		Key: annotationStickiness, Changes: schema.InPlace,
		Spec: schema.Spec{
			Choices: []string{"lbcookie", "sourcebased"}, AnyCase: true, DefaultHelp: "none",
			Help: "Clients stay with one node: by a cookie of the load balancer at ports with `appProtocol: http` (LbCookie), or by their address at " +
				"all TCP ports (SourceBased). Policies that somebody made stay.",
		},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.StickinessParams }, schema.AnnotationRow{
		Key: annotationStickinessParams, Changes: schema.InPlace, Needs: schema.Given(annotationStickiness),
		Spec: schema.Spec{
			DefaultHelp: "those of CloudStack",
			Help: "Parameters of the method, as `name=value` with commas between them: `cookie-name`, `mode` (`insert`, `rewrite`, `prefix`), `domain` " +
				"and the flags `nocache`, `indirect`, `postonly` of LbCookie; `tablesize` and `expire` of SourceBased.",
		},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Sticky }, schema.AnnotationRow{
		Key: annotationSticky, Changes: schema.Written,
		Spec: schema.Spec{Default: "false", Lenient: true, Help: "Rules of the Service have stickiness policies of this program."},
	}),
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Associated }, schema.AnnotationRow{
		Key: annotationAssociated, Changes: schema.Written,
		Spec: schema.Spec{Default: "false", Lenient: true, Help: "The address that the Service names was taken for it. For CloudStack's own controller: here it releases nothing."},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Record }, schema.AnnotationRow{
		Key: annotationRecord, Changes: schema.Written, Spec: schema.Spec{
			MaxLength: 96, Help: "ID of the address that was taken for this Service, or when one was asked for, with a seal that only this program can make. Ours.",
			ID: schema.NewIDForm("the ID of an address", "123e4567-e89b-42d3-a456-426614174000",
				recordForm),
		},
	}),
}

func checkCIDRs(v string) error {
	if strings.TrimSpace(v) == "" {
		return nil
	}
	for part := range strings.SplitSeq(v, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(part)); err != nil {
			return fmt.Errorf(`holds %q, which is not a network; use a form such as "10.0.0.0/8,192.168.1.0/24"`, strings.TrimSpace(part))
		}
	}
	return nil
}

// parseSettings reads and validates a Service's annotations, without calls.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	if text := service.Annotations[annotationKeepIP]; text != "" && !s.KeepIP {
		keep, illegal := strconv.ParseBool(text)
		s.KeepIP = keep || illegal != nil // an invalid value releases nothing
	}
	s.Address = strings.TrimSpace(cmp.Or(s.Address, service.Spec.LoadBalancerIP))
	warned, refused := unsupportedSettings(service)
	var problem error
	s.sticky, problem = stickinessOf(service, s)
	return s, errors.Join(warnings, warned), errors.Join(err, refused, problem)
}

// unsupportedSettings reports settings of a Service that CloudStack does not support.
func unsupportedSettings(service *v1.Service) (warnings, err error) {
	spec := service.Spec
	if len(spec.Ports) == 0 {
		err = errors.Join(err, &schema.Problem{Place: "spec.ports", Reason: "requested load balancer with no ports"})
	}
	for _, cidr := range spec.LoadBalancerSourceRanges {
		if p, bad := netip.ParsePrefix(strings.TrimSpace(cidr)); bad != nil || !p.Addr().Is4() {
			err = errors.Join(err, &schema.Problem{Place: "spec.loadBalancerSourceRanges", Value: cidr, Reason: "is not an IPv4 network, and the firewall has no others"})
		}
	}
	if ip := spec.LoadBalancerIP; ip != "" {
		if a, bad := netip.ParseAddr(strings.TrimSpace(ip)); bad != nil || !a.Is4() {
			err = errors.Join(err, &schema.Problem{Place: portable.FieldLoadBalancerIP, Value: ip, Reason: "is not an IPv4 address"})
		}
	}
	warnings, refused := serviceFields.Judge(service, nil)
	return warnings, errors.Join(err, refused)
}

// checkService implements registry.Provider.CheckService.
func checkService(_ registry.Inputs, service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service)
	return warnings, err
}

// allowedNetworks returns the networks that the firewall admits.
func allowedNetworks(service *v1.Service) []string {
	return cidrs(strings.Join(service.Spec.LoadBalancerSourceRanges, ","))
}
