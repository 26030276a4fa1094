package app

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/cloud-provider/names"
)

// validate checks all settings before the start. The provider's name comes first and alone: nothing else can be checked without it, and no
// missing kubeconfig may hide it. All other faults are reported together.
func (m *manager) validate() error {
	shared := m.options.KubeCloudShared
	p, err := m.providers.Lookup(shared.CloudProvider.Name)
	if err != nil {
		return err
	}
	shared.CloudProvider.Name = p.Name

	var problems []error
	for _, workers := range []struct {
		flag  string
		value int32
	}{
		{"concurrent-node-syncs", m.options.NodeController.ConcurrentNodeSyncs},
		{"concurrent-node-status-updates", max(m.options.NodeController.ConcurrentNodeStatusUpdates, m.options.NodeController.ConcurrentNodeSyncs)},
		{"concurrent-node-lifecycle-syncs", m.options.NodeLifecycleController.ConcurrentNodeLifecycleSyncs},
		{"concurrent-service-syncs", m.options.ServiceController.ConcurrentServiceSyncs},
	} {
		if workers.value < 1 {
			problems = append(problems, fmt.Errorf("--%s=%d: without workers nothing is done; use 1 or more", workers.flag, workers.value))
		}
	}
	if m.options.NodeController.ConcurrentNodeStatusUpdates < 0 {
		problems = append(problems, fmt.Errorf("--concurrent-node-status-updates=%d: use 0 or more", m.options.NodeController.ConcurrentNodeStatusUpdates))
	}
	enabled := m.enabledControllers()
	if work := enabled.Clone().Delete(cloudAPIController); work.Len() == 0 {
		problems = append(problems, fmt.Errorf(`--controllers=%s: starts no controller; to switch one off, write "*" first, as in "*,-%s"`,
			strings.Join(m.options.Generic.Controllers, ","), names.NodeRouteController))
	}
	in, err := m.inputs()
	if err == nil && m.makesRoutes(p, in) && shared.ClusterCIDR == "" {
		problems = append(problems, fmt.Errorf("--cluster-cidr is missing: provider %s manages routes; set it to the range of pod addresses, or set --configure-cloud-routes=false", p.Name))
	}
	problems = append(problems, m.policy.Validate(), m.services.validate(), m.accounts.validate(), m.kubeconfigs(),
		m.validateServing(p), m.validateLabels(p))
	if m.accounts.place != "" && !shared.UseServiceAccountCredentials {
		problems = append(problems, fmt.Errorf("--controller-accounts=%s: has no effect without --use-service-account-credentials", m.accounts.place))
	}
	if err != nil {
		problems = append(problems, err)
	} else {
		problems = append(problems, p.Validate(in), m.defaults.load(p, in))
	}
	return errors.Join(problems...)
}

// kubeconfigs checks the files of both options, because the framework's error does not name the option.
func (m *manager) kubeconfigs() error {
	var problems []error
	for _, name := range []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"} {
		f := m.cmd.Flags().Lookup(name)
		if f == nil || f.Value.String() == "" {
			continue
		}
		if _, err := clientcmd.LoadFromFile(f.Value.String()); err != nil {
			problems = append(problems, fmt.Errorf("--%s=%s: %w", name, f.Value.String(), err))
		}
	}
	return errors.Join(problems...)
}
