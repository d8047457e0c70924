"""Converting stores, jobs, results and settings that earlier versions of adiabat wrote."""
