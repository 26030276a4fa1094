package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file finds the compartment and subnets of a load balancer, and its reserved address.

// errPlace is returned if the load balancer cannot be created where the Service requests it.
var errPlace = errors.New("the load balancer cannot be made as the Service asks for it")

func placeError(err error) error { return fmt.Errorf("%w: %w", errPlace, err) }

// placement is the place of a load balancer that exists, or is to be created.
type placement struct {
	compartment, vcn, mark string
	// asked is the compartment that the Service requests for a new load balancer.
	asked string
	// configured is the cloud config's compartment, recorded the one on the Service's record.
	configured, recorded string
	subnets              []string
	// reserved is the ID of the public address to use, or "".
	reserved string
	ipv6     bool
}

const byAddressPath = "/publicIps/actions/getByIpAddress"

// checkReserved compares the reserved address, which cannot be changed, with the Service's. notice reports a harmless difference.
func checkReserved(lb *loadBalancer, s settings) (notice string, err error) {
	if lb == nil {
		return "", nil
	}
	reserved := slices.IndexFunc(lb.Addresses, func(a address) bool { return a.Reserved != nil })
	has := slices.ContainsFunc(lb.Addresses, func(a address) bool { return a.IP == s.Address })
	switch {
	case s.Address != "" && !has && len(lb.Addresses) > 0:
		return "", s.refuseAddress("The Load Balancer service reserved IP cannot be updated after the Load Balancer is created.")
	case s.Address == "" && reserved >= 0:
		return fmt.Sprintf("load balancer %s keeps its reserved address %s until it is made again", lb.Name, lb.Addresses[reserved].IP), nil
	}
	return "", nil
}

// fixed lists an existing load balancer's settings that only count at creation.
func (s settings) fixed(lb *loadBalancer) []services.Fixed {
	if lb == nil {
		return nil
	}
	own, internal, subnet, free, defined := s.ownTags(), annotationInternal, annotationSubnet1, annotationFreeform, annotationDefined
	if s.nlb {
		internal, subnet, free, defined = nlbInternal, nlbSubnet, nlbNewFreeform, nlbNewDefined
	}
	if s.OldFreeform != "" && s.Freeform == s.OldFreeform {
		free = nlbFreeform
	}
	if s.OldDefined != "" && s.Defined == s.OldDefined {
		defined = nlbDefined
	}
	all := []services.Fixed{
		services.Single(annotationCompartment, s.OwnCompartment, cmp.Or(lb.Compartment, s.OwnCompartment)),
		lb.fixedSubnet(subnet, s.Subnet1), lb.fixedSubnet(annotationSubnet2, s.Subnet2),
		fixedTags(free, own.Freeform, lb.Tags), fixedTags(defined, flatTags(own.Defined), flatTags(lb.Defined)),
		lb.fixedAddress(nlbPrivateIPv4, s.PrivateIPv4, netip.Addr.Is4), lb.fixedAddress(nlbIPv6, s.IPv6, netip.Addr.Is6),
	}
	if len(lb.Addresses) > 0 {
		private := !slices.ContainsFunc(lb.Addresses, func(a address) bool { return a.Public })
		all = append(all, services.Single(internal, strconv.FormatBool(s.Internal), strconv.FormatBool(private)))
	}
	return all
}

// fixedAddress compares an address of an IP version. A load balancer may have several; one without any allows everything.
func (lb *loadBalancer) fixedAddress(key, asked string, family func(netip.Addr) bool) services.Fixed {
	wanted, _ := netip.ParseAddr(asked)
	var has []string
	for _, a := range lb.Addresses {
		if ip, err := netip.ParseAddr(a.IP); err == nil && family(ip) {
			if has = append(has, a.IP); ip == wanted {
				return services.Matching(key, asked, "", true)
			}
		}
	}
	return services.Matching(key, asked, strings.Join(has, ","), len(has) == 0)
}

// fixedSubnet compares a subnet. A load balancer may have another one as well.
func (lb *loadBalancer) fixedSubnet(key, asked string) services.Fixed {
	return services.Matching(key, asked, strings.Join(lb.Subnets, ","), slices.Contains(lb.Subnets, asked))
}

// fixedTags compares the requested tags.
func fixedTags(key string, asked, has map[string]string) services.Fixed {
	f := services.Fixed{Place: key}
	for _, name := range sortedKeys(asked) {
		f.Asked = append(f.Asked, name+"="+asked[name])
		if v, there := has[name]; there {
			f.Has = append(f.Has, name+"="+v)
		}
	}
	return f
}

// flatTags returns defined tags as <namespace>.<key>.
func flatTags(defined map[string]map[string]any) map[string]string {
	all := map[string]string{}
	for namespace, tags := range defined {
		for name, v := range tags {
			text := fmt.Sprint(v)
			if number, ok := v.(float64); ok {
				text = strconv.FormatFloat(number, 'f', -1, 64) // without an exponent
			}
			all[namespace+"."+name] = text
		}
	}
	return all
}

// ipv6Policy returns how much a Service wants IPv6 besides IPv4. "" is not at all.
func ipv6Policy(service *v1.Service) v1.IPFamilyPolicy {
	policy := service.Spec.IPFamilyPolicy
	if policy == nil || !slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol) || *policy == v1.IPFamilyPolicySingleStack {
		return ""
	}
	return *policy
}

// warnOfSingleStack warns of a Service that asks for two IP versions and gets one.
func warnOfSingleStack(service *v1.Service, both bool) []services.Finding {
	if both || ipv6Policy(service) == "" {
		return nil
	}
	return []services.Finding{services.Warning(services.EventSingleStack, "spec.ipFamilies: the load balancer has addresses of one family alone: its subnets lack "+
		"the other one, or lacked it when it was made")}
}

func (r *reconciler) findPlacement(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) (p placement, err error) {
	where, err := r.api.location(ctx)
	if err != nil {
		return p, cloudapi.Describe(err, "finding the compartment of the cluster")
	}
	p.compartment, p.configured, p.vcn = where.compartment, where.compartment, r.api.config.VCN
	p.recorded = service.Annotations[annotationPlaced]
	if s.OwnCompartment != "" {
		p.compartment = s.OwnCompartment
	}
	p.asked = p.compartment
	if p.mark, err = r.cluster.Mark(ctx); err != nil {
		return p, err
	}
	if lb != nil {
		p.subnets, p.compartment, p.ipv6 = lb.Subnets, lb.Compartment, lb.IPMode == versionIPv6
	} else {
		if err = r.placeInSubnets(ctx, service, s, &p); err == nil && s.Address != "" {
			p.reserved, err = r.reservedAddress(ctx, s)
		}
		if err != nil {
			return p, cloudapi.NotAbsence(err)
		}
	}
	if p.vcn == "" && s.mode == modeGroups && len(p.subnets) > 0 {
		found, err := r.networks.subnets.Get(ctx, p.subnets[0], inventory.Query{MaxAge: subnetMaxAge})
		if err != nil {
			return p, cloudapi.NotAbsence(err)
		}
		p.vcn = found.VCN
	}
	return p, nil
}

// subnetsOf returns the subnets of a new load balancer.
func (r *reconciler) subnetsOf(ctx context.Context, s settings) ([]string, error) {
	return s.chooseSubnets(r.api.config.Subnet1, r.api.config.Subnet2, func(id string) (bool, error) {
		found, err := r.networks.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		return found.Domain == "", err
	})
}

// placeInSubnets sets a new load balancer's subnets, and whether it has IPv6 addresses as well.
func (r *reconciler) placeInSubnets(ctx context.Context, service *v1.Service, s settings, p *placement) (err error) {
	if s.nlb {
		p.subnets = []string{cmp.Or(s.Subnet1, r.api.config.Subnet1)}
		return nil
	}
	p.subnets, err = r.subnetsOf(ctx, s)
	if errors.Is(err, errNoSubnet) {
		return placeError(err)
	}
	policy := ipv6Policy(service)
	if err != nil || policy == "" {
		return err
	}
	p.ipv6 = true
	for _, id := range p.subnets {
		found, err := r.networks.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		p.ipv6 = p.ipv6 && len(found.cidrs(false, true)) > 0
		if !p.ipv6 && policy == v1.IPFamilyPolicyRequireDualStack {
			return placeError(fmt.Errorf("subnet %s has no network of IPv6", id))
		}
	}
	return nil
}

// desireBalancer adds the shape and the certificates, which network load balancers do not have.
func (r *reconciler) desireBalancer(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, d *desired) (err error) {
	if d.shape, d.details, err = s.shapeFor(lb); err != nil {
		return err
	}
	front, back, err := r.certificates(ctx, service, s)
	if err != nil {
		return err
	}
	d.addTLS(service, s, lb, front, back)
	d.obsolete = r.obsoleteCertificates(ctx, service, lb, d.certificates, r.noteSecrets(service.UID, front, back))
	return nil
}

// refuseAddress returns an error about the reserved address that a Service requests.
func (s settings) refuseAddress(format string, args ...any) error {
	return &schema.Problem{Place: s.addressPlace, Value: s.Address, Reason: fmt.Sprintf(format, args...)}
}

// reservedAddress returns the ID of a free reserved public address.
func (r *common) reservedAddress(ctx context.Context, s settings) (string, error) {
	ip := s.Address
	var found struct {
		ID      string `json:"id"`
		Address string `json:"ipAddress"`
		State   string `json:"lifecycleState"`
	}
	what := "looking for the reserved address " + ip
	_, err := r.api.call(ctx, what, http.MethodPost, byAddressPath, document{"ipAddress": ip}, &found, nil)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", placeError(s.refuseAddress("there is no such reserved public address, or the policies of the user hide it"))
	case err != nil:
		return "", err
	case found.ID == "" || found.Address != ip:
		return "", cloudapi.Unclear(what, "the answer is about another one")
	case found.State != "AVAILABLE":
		return "", placeError(s.refuseAddress("is not free: the address is %s", found.State))
	}
	return found.ID, nil
}
