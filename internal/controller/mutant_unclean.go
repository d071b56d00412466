//go:build mutant_unclean

package controller

const mutant = "unclean"
