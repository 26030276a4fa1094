package oci

import (
	"fmt"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	annotationBackGroups = oraclePrefix + "oci-backend-network-security-group"
	annotationRuleSets   = oraclePrefix + "oci-load-balancer-rule-sets"
	annotationAccount    = oraclePrefix + "workload-service-account"
	// annotationAddress is ours: Oracle's own controller has only the field of the Service.
	annotationAddress     = "anyccm.io/oci-reserved-address"
	modeAll, modeFrontend = "All", "Frontend"
	modeGroups            = "NSG"
)

func lenient(r schema.AnnotationRow) schema.AnnotationRow {
	r.Lenient = true
	return r
}

func ruleModeForm(v string) error {
	if _, ok := ruleModes()[strings.ToUpper(v)]; !ok && v != modeNone {
		return fmt.Errorf("invalid value: %s provided for annotation: %s; use SL-All, SL-Frontend, NSG or None", v, annotationRuleMode)
	}
	return nil
}

// ruleModes are the modes of the annotation that takes them in any case.
func ruleModes() map[string]string {
	return map[string]string{"SL-ALL": modeAll, "SL-FRONTEND": modeFrontend, "NSG": modeGroups}
}
