"""What Nimbus can be asked, and how each question is answered or carried out."""
