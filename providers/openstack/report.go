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
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// unsupportedSettings reports settings that this Octavia or its provider does not support.
func unsupportedSettings(service *v1.Service, s settings, f features, c loadBalancerConfig) (findings []services.Finding) {
	if !s.sources.Everybody() && !f.hasACL() && (!f.isOVN() || !c.ManageSecurityGroups) {
		findings = append(findings, rangesIgnored(f.provider))
	}
	if s.Zone != "" && !f.hasZones() {
		findings = append(findings, services.Warning(eventZoneIgnored,
			"the availability zone %q has no effect: this Octavia with provider %s knows none", s.Zone, f.provider))
	}
	return append(findings, s.withoutMonitor(service)...)
}

func rangesIgnored(provider string) services.Finding {
	return services.Warning(services.EventRangesIgnored, "the source ranges of the Service have no effect: this Octavia with provider %s cannot restrict who comes in", provider)
}

// withoutMonitor reports that connections get lost because no health is checked.
func (s settings) withoutMonitor(service *v1.Service) (findings []services.Finding) {
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && !s.monitor {
		findings = append(findings, services.Warning(eventNoMonitor, "with externalTrafficPolicy Local and without health monitors, "+
			"connections to nodes that run no pod of the Service are lost; set %s or the option create-monitor to true", annotationMonitor))
	}
	return findings
}

// singleStack reports a load balancer with only one of two families.
func singleStack(family v1.IPFamily) services.Finding {
	return services.Warning(services.EventSingleStack, "spec.ipFamilies: the load balancer has an address of %s alone: a second one is made with it, and "+
		"needs version 2.26 of Octavia's API, a provider that knows it, and a subnet of the other family on the same network", family)
}

// certificate is an existing reference in the key manager.
type certificate struct{ ref string }

func newCertificateInventory(a *api) *inventory.Inventory[string, certificate] {
	return inventory.New(inventory.Source[string, certificate]{
		Kind: "certificate", ID: func(c certificate) string { return c.ref },
		Get: func(ctx context.Context, ref string) (certificate, error) {
			kind, id, err := splitReference(ref)
			if err != nil {
				return certificate{}, err
			}
			_, err = request[json.RawMessage](ctx, a, keyManager, "reading the certificates "+ref, http.MethodGet, kind+"/"+id, nil, "status",
				http.StatusOK)
			return certificate{ref}, err
		},
	})
}

// checkCertificate refuses a reference that the key manager does not have.
func (r *reconciler) checkCertificate(ctx context.Context, s settings) error {
	if s.TLSContainerRef == "" || r.config.LoadBalancer.ContainerStore != storeBarbican {
		return nil
	}
	_, err := r.certificates.Get(ctx, s.TLSContainerRef, inventory.Query{MaxAge: updateMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return &schema.Problem{
			Place: "annotation " + annotationTLSContainerRef, Value: s.TLSContainerRef,
			Reason: "is not in the key manager, or its access list does not let the project read it",
		}
	}
	return err
}

// withAnnotations returns the Service with changed annotations; "" removes one.
func withAnnotations(service *v1.Service, annotations map[string]string) *v1.Service {
	service = service.DeepCopy()
	for key, value := range annotations {
		if value == "" {
			delete(service.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, key, value)
	}
	return service
}

// record writes changed annotations on the Service, and updates the request's Service; "" removes one.
func (r *reconciler) record(ctx context.Context, req *services.Request, wanted map[string]string) error {
	changes := map[string]any{}
	for key, value := range wanted {
		switch have, present := req.Service.Annotations[key]; {
		case value == "" && present:
			changes[key] = nil
		case value != "" && have != value:
			changes[key] = value
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if r.kube != nil {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": req.Service.UID, "annotations": changes}})
		if err != nil {
			return fmt.Errorf("recording the load balancer on the Service: %w", err)
		}
		_, err = r.kube.CoreV1().Services(req.Service.Namespace).Patch(
			ctx, req.Service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		)
		if err != nil {
			return fmt.Errorf("recording the load balancer on the Service: %w", err)
		}
	}
	req.Service = withAnnotations(req.Service, wanted)
	return nil
}
