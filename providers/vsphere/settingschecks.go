package vsphere

import (
	"context"
	"errors"

	"github.com/anyccm/cloud-controller-manager/registry"
)

var _ registry.SettingsChecker = (*cloud)(nil)

// CheckSettings implements registry.SettingsChecker: what vCenter and NSX alone can judge, all at once.
func (c *cloud) CheckSettings(ctx context.Context) error {
	return errors.Join(c.api.checkSettings(ctx, c.instances.config.Labels), c.Parts.CheckSettings(ctx))
}

// checkSettings looks for the datacenters and the categories of tags.
func (a *api) checkSettings(ctx context.Context, labels labelsConfig) error {
	var problems []error
	for _, v := range a.vcenters {
		problems = append(problems, v.listMachines(ctx, false).err)
		if labels.isEnabled() {
			_, err := v.readZoneTags(ctx, labels)
			problems = append(problems, err)
		}
	}
	return errors.Join(append(problems, a.datacenterProblem())...)
}
