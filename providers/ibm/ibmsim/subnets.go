package ibmsim

import "net/http"

// serveSubnets answers reads of subnets.
func (s *Sim) serveSubnets(r *http.Request, rest []string) (int, any, *refusal) {
	if len(rest) > 1 || r.Method != http.MethodGet {
		return refuseMethod()
	}
	shown := []object{}
	for _, n := range s.subnets {
		if len(rest) == 1 && n.ID == rest[0] {
			return http.StatusOK, s.showSubnet(r, n), nil
		}
		if v := r.URL.Query().Get("vpc.name"); v == "" || v == n.VPC {
			shown = append(shown, s.showSubnet(r, n))
		}
	}
	if len(rest) == 1 {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "Subnet not found")
	}
	return s.page(r, "subnets", shown, "vpc.name")
}

// serveVPCs answers reads of VPCs.
func (s *Sim) serveVPCs(r *http.Request, rest []string) (int, any, *refusal) {
	switch {
	case len(rest) == 2:
		return s.defaultGroup(r, rest)
	case len(rest) > 1 || r.Method != http.MethodGet:
		return refuseMethod()
	}
	shown := []object{}
	for _, name := range s.vpcs {
		if len(rest) == 1 && vpcID(name) == rest[0] {
			return http.StatusOK, s.showVPC(r, name), nil
		}
		shown = append(shown, s.showVPC(r, name))
	}
	if len(rest) == 1 {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "VPC not found")
	}
	return s.page(r, "vpcs", shown)
}

// serveRegion answers the read of the region, which says where its API is.
func serveRegion(r *http.Request, rest []string) (int, any, *refusal) {
	if len(rest) != 1 || r.Method != http.MethodGet {
		return refuseMethod()
	}
	if rest[0] != Region {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "Region not found")
	}
	return http.StatusOK, object{"name": Region, "href": address(r, "/regions/"+Region), "endpoint": "http://" + r.Host, "status": "available"}, nil
}
