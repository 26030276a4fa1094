package ibm

import (
	"context"
	"net/url"
)

// subnet holds the fields of a subnet that we use.
type subnet struct {
	ID   string    `json:"id"`
	Name string    `json:"name"`
	CIDR string    `json:"ipv4_cidr_block"`
	Zone reference `json:"zone"`
	VPC  reference `json:"vpc"`
}

// subnets lists the subnets of the VPC.
func (a *api) subnets(ctx context.Context) ([]subnet, int, error) {
	return list[subnet](ctx, a, "subnets", "/subnets", url.Values{"vpc.name": {a.config.VPC}})
}
