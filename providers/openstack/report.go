package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Reasons of the events that the provider writes on Services. Those that begin with LoadBalancer and are listed in the
// manual of OpenStack's own controller have its names.
const (
	eventConfigError     = "LoadBalancerConfigError"
	eventIgnored         = "LoadBalancerAnnotationIgnored"
	eventFixed           = "LoadBalancerAnnotationFixed"
	eventNotOurs         = ownership.EventNotOurs
	eventForcedInternal  = "LoadBalancerForcedInternal"
	eventRangesIgnored   = "LoadBalancerSourceRangesIgnored"
	eventZoneIgnored     = "LoadBalancerAvailabilityZonesIgnored"
	eventFloatingSkipped = "LoadBalancerFloatingIPSkipped"
	eventRename          = "LoadBalancerRename"
	eventRecreated       = "LoadBalancerRecreated"
	eventFailover        = "LoadBalancerFailover"
	eventBroken          = "LoadBalancerError"
	eventNoMonitor       = "LoadBalancerHealthMonitorMissing"
	eventSingleStack     = "LoadBalancerSingleStack"
	eventShared          = "LoadBalancerShared"
)

// settings reads the annotations and tells the Service what is wrong with them.
func (l *loadBalancers) settings(service *v1.Service) (settings, error) {
	s, warnings, err := parseSettings(service, l.config)
	for _, w := range schema.Problems(warnings) {
		l.event(service, eventIgnored, w.Error())
	}
	if err != nil {
		l.event(service, eventConfigError, err.Error())
	}
	return s, err
}

// reportUnsupported tells of wishes that this Octavia, or its provider, cannot fulfil.
func (l *loadBalancers) reportUnsupported(service *v1.Service, s settings, lb *balancer, f features) {
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	if len(s.cidrs) > 0 && !f.acl(provider) && (provider != providerOVN || !l.config.LoadBalancer.ManageSecurityGroups) {
		l.event(service, eventRangesIgnored, fmt.Sprintf("the source ranges of the Service have no effect: this Octavia with provider %s cannot restrict who comes in", provider))
	}
	if s.Zone != "" && !f.zones(provider) {
		l.event(service, eventZoneIgnored, fmt.Sprintf("the availability zone %q has no effect: this Octavia with provider %s knows none", s.Zone, provider))
	}
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && !s.monitor {
		l.event(service, eventNoMonitor, fmt.Sprintf("with externalTrafficPolicy Local and without health monitors, connections to nodes that run no pod of the Service are lost; set %s or the option create-monitor to true", annotationMonitor))
	}
}

// reportFixed tells of wishes that came too late.
func (l *loadBalancers) reportFixed(service *v1.Service, s settings, lb *balancer, f features) {
	networkID, subnetID := vipNetworks(s, loadBalancerConfig{})
	provider := lb.providerOr(l.config.LoadBalancer.Provider)
	for _, one := range []struct {
		key, wanted, have string
		applies           bool
	}{
		{annotationPortID, s.PortID, lb.VIPPortID, true},
		{annotationSubnetID, subnetID, lb.VIPSubnetID, s.PortID == ""},
		{annotationNetworkID, networkID, lb.VIPNetworkID, s.PortID == "" && subnetID == ""},
		{annotationFlavorID, s.FlavorID, lb.FlavorID, f.flavors(provider)},
		{annotationZone, s.Zone, lb.Zone, f.zones(provider)},
	} {
		if service.Annotations[one.key] != "" && one.applies && one.wanted != "" && one.wanted != one.have {
			l.event(service, eventFixed, fmt.Sprintf("annotation %s: %q has no effect, it stays %q: it is fixed when the load balancer is created; delete and create the Service to change it", one.key, one.wanted, one.have))
		}
	}
}

// checkCertificates asks the key manager whether a reference exists.
func (l *loadBalancers) checkCertificates(ctx context.Context, service *v1.Service, s settings) error {
	if s.TLSContainerRef == "" || l.config.LoadBalancer.ContainerStore != storeBarbican {
		return nil
	}
	kind, id, err := splitReference(s.TLSContainerRef)
	if err != nil {
		return err
	}
	_, err = request[json.RawMessage](ctx, l.api, keyManager, "reading the certificates "+s.TLSContainerRef, http.MethodGet, kind+"/"+id, nil, "status", http.StatusOK)
	if errors.Is(err, cloudapi.ErrNotFound) {
		problem := &schema.Problem{Place: "annotation " + annotationTLSContainerRef, Value: s.TLSContainerRef, Reason: "is not in the key manager, or its access list does not let the project read it"}
		l.event(service, eventConfigError, problem.Error())
		return problem
	}
	return err
}

// record writes annotations on the Service where they differ; nil removes one.
func (l *loadBalancers) record(ctx context.Context, service *v1.Service, wanted map[string]any) error {
	changes := map[string]any{}
	for key, value := range wanted {
		if have, present := service.Annotations[key]; (value == nil && present) || (value != nil && have != value) {
			changes[key] = value
		}
	}
	if len(changes) == 0 || l.kube == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("recording the load balancer on the Service: %w", err)
	}
	if _, err := l.kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("recording the load balancer on the Service: %w", err)
	}
	return nil
}

func (l *loadBalancers) event(service *v1.Service, reason, message string) {
	if l.events != nil {
		l.events.Event(service, v1.EventTypeWarning, reason, message)
	}
}
