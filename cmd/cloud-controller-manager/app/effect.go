package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// makesRoutes reports whether the cloud creates routes to the pods' networks, with this configuration and arguments.
func (m *manager) makesRoutes(p registry.Provider, in registry.Inputs) bool {
	return p.Features.Routes == registry.Done && (p.Routes == nil || p.Routes(in)) &&
		m.options.KubeCloudShared.ConfigureCloudRoutes && m.enabledControllers().Has(names.NodeRouteController)
}

// givesPodRanges reports whether --allocate-node-cidrs makes the cloud assign pod ranges.
func (m *manager) givesPodRanges(p registry.Provider) bool {
	enabled := m.enabledControllers()
	return p.PodRanges || slices.ContainsFunc(p.Controllers, func(c registry.Controller) bool { return c.PodRanges && enabled.Has(c.Name) })
}

// ineffectiveFlags returns the flags that were set but have no effect on this cloud and configuration.
func (m *manager) ineffectiveFlags(p registry.Provider, in registry.Inputs) (flags []string) {
	shared := m.options.KubeCloudShared
	routes, ranges := m.makesRoutes(p, in), m.givesPodRanges(p)
	allocates := ranges && shared.AllocateNodeCIDRs
	for _, f := range []struct {
		name    string
		effects bool
	}{
		{"allocate-node-cidrs", ranges || !shared.AllocateNodeCIDRs},
		{"cidr-allocator-type", allocates},
		{"cluster-cidr", routes || allocates},
		{"configure-cloud-routes", routes || !shared.ConfigureCloudRoutes},
		{"route-reconciliation-period", routes},
	} {
		if !f.effects && m.cmd.Flags().Changed(f.name) {
			flags = append(flags, "--"+f.name)
		}
	}
	return flags
}

// warnOfSettings logs settings of the cloud without effect.
func warnOfSettings(p registry.Provider, in registry.Inputs) {
	if p.Warnings == nil {
		return
	}
	for _, w := range schema.Problems(p.Warnings(in)) {
		klog.Warning(w.Error())
	}
}

// warnOfIneffective logs settings and flags without effect. They are accepted, so that other controllers' arguments work.
func (m *manager) warnOfIneffective(provider string, in registry.Inputs) {
	p, err := m.providers.Lookup(provider)
	if err != nil {
		return
	}
	warnOfSettings(p, in)
	if flags := m.ineffectiveFlags(p, in); len(flags) > 0 {
		const message = "no effect on %s as it is configured: %s; leave them out, or configure routes or pod ranges where the cloud has them"
		klog.Warning(fmt.Sprintf(message, heading(p), strings.Join(flags, ", ")))
	}
}

// whereRoutes starts the route controller only if the cloud creates routes. Otherwise the framework would warn of a default.
func whereRoutes(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	construct := inner.Constructor
	inner.Constructor = func(
		i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface,
	) frameworkapp.InitFunc {
		start := construct(i, c, cloud)
		return func(ctx context.Context, cc controllermanager.ControllerContext) (controller.Interface, bool, error) {
			if _, ok := cloud.Routes(); !ok {
				return nil, false, nil
			}
			return start(ctx, cc)
		}
	}
	return inner
}
