"""`python -m lrb rate`: the largest number of expressways answered rightly and in time.

From the command down to one step:

    command    what the command does and shows
    rate       the search over real runs
    search_ladder
               which number of expressways is tried next
    rating_step
               one number of expressways at their own pace, every answer judged
    replica_check
               the answers to replicas, part by part
    usage      memory and cores that the processes of a job take
"""
